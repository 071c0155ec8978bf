"""Write records of dpbench into asv's results, for `asv compare` and `asv publish`.

`asv compare` then prints the numbers of `dpbench compare`. The results have their own environment, so nothing that asv
measured is replaced.
"""

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from dpbench.asv import grid
from dpbench.asv.machine_file import AsvError, Machine, facts_of
from dpbench.asv.result_file import Measured, Point, ResultFile, ResultRow, read_results, write_results
from dpbench.records.record import Environment, Outcome, Record
from dpbench.stats.order_statistics import Z99, interval_of_median
from dpbench.stats.rounds import median_of_rounds

_DISCOVER = "asv run --bench just-discover"
"""The command that writes asv's list of benchmarks, which asv needs beside the results files."""


@dataclass(frozen=True)
class Export:
    """The files that were written, and one line for each reason why records were left out."""

    paths: tuple[Path, ...]
    left_out: tuple[str, ...]


def export(records: Sequence[Record], results: Path, machine: Machine, date_ms: Callable[[str], int]) -> Export:
    """Write the records' step times into asv's `results` folder, one file for each commit.

    Other points that are already in a file stay. `date_ms` returns a commit's date. Raises AsvError.
    """
    kept, left_out = _sort_out(records)
    files = [_file_of(commit, found, machine, date_ms(commit)) for commit, found in kept.items()]
    folder = results / machine["machine"]
    paths = [folder / f"{file.commit_hash[:8]}-{file.env_name}.json" for file in files]
    merged = [_merged(path, file) if path.exists() else file for path, file in zip(paths, files, strict=True)]
    for path, file in zip(paths, merged, strict=True):
        write_results(path, file)
    return Export(tuple(paths), left_out)


def commit_date_ms(commit: str) -> int:
    """Return a commit's date in milliseconds since 1970, from the current folder's repository.

    Raises AsvError.
    """
    command = ["git", "rev-list", "--max-count=1", "--timestamp", "--end-of-options", f"{commit}^{{commit}}", "--"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise AsvError(f"git cannot be started: {error.strerror}; allowed: git on the PATH") from error
    if done.returncode != 0:
        raise AsvError(f"commit {commit} is not in this folder's repository; allowed: that of the measurement")
    return int(done.stdout.split()[0]) * 1000


def lacks(results: Path, machine: str) -> list[str]:
    """Return a line if asv cannot read the machine's results yet, else nothing."""
    missing = [path for path in (results / "benchmarks.json", results / machine / "machine.json") if not path.exists()]
    if not missing:
        return []
    return [f"asv does not read these results without {' and '.join(map(str, missing))}; first: {_DISCOVER}"]


def _sort_out(records: Iterable[Record]) -> tuple[dict[str, dict[Point, list[Record]]], tuple[str, ...]]:
    """Return the records by commit and grid point, and a line for each reason to omit some."""
    kept: dict[str, dict[Point, list[Record]]] = {}
    reasons: dict[str, int] = {}
    for record in records:
        found = _place_or_reason(record)
        if isinstance(found, str):
            reasons[found] = reasons.get(found, 0) + 1
        else:
            commit, point = found
            kept.setdefault(commit, {}).setdefault(point, []).append(record)
    return kept, tuple(f"{count} records: {reason}" for reason, count in reasons.items())


def _place_or_reason(record: Record) -> tuple[str, Point] | str:
    environment = record.environment
    if record.outcome is not Outcome.OK or environment is None:
        return "no times"
    if environment.commit is None or environment.dirty:
        return "no clean commit: the tree had changes, or there is no repository"
    point = grid.point_of(record.case, len(environment.gpus), environment.cores)
    if point is None:
        return "not in the grid of dpbench/asv/grid.py"
    return environment.commit, tuple(map(repr, point))


def _file_of(commit: str, points: dict[Point, list[Record]], machine: Machine, date_ms: int) -> ResultFile:
    found = [record for records in points.values() for record in records]
    environment = found[0].environment
    assert environment is not None
    python = ".".join(environment.python.split(".")[:2])
    row = ResultRow(
        params=tuple(tuple(map(repr, values)) for values in grid.grid()),
        version=grid.VERSION,
        points={point: _measured(records) for point, records in points.items()},
        started_at_ms=min(_started_ms(record) for record in found),
    )
    return ResultFile(
        commit_hash=commit,
        env_name=f"dpbench-records-py{python}",
        date=date_ms,
        params={**machine, **_facts(environment), "python": python},
        python=python,
        requirements={},
    ).with_row(grid.STEP_TIME, row)


def _started_ms(record: Record) -> int:
    """Return milliseconds since 1970. A date without a zone is taken as UTC."""
    started = datetime.fromisoformat(record.started_at)
    return int((started if started.tzinfo else started.replace(tzinfo=UTC)).timestamp() * 1000)


def _facts(environment: Environment) -> Machine:
    return facts_of(environment.gpus, driver=environment.driver, nccl=environment.nccl, torch=environment.torch)


def _measured(records: Sequence[Record]) -> Measured:
    """Return the estimate of `dpbench compare`, with asv's own statistics of the samples."""
    rounds = [record.step_times_s for record in records]
    samples = tuple(sample for each in rounds for sample in grid.spaced(each))
    low, _, high = interval_of_median(samples, Z99)
    q_25, q_75 = map(float, np.quantile(samples, (0.25, 0.75)))
    stats = {
        "ci_99_a": low,
        "ci_99_b": high,
        "q_25": q_25,
        "q_75": q_75,
        "number": 1,
        "repeat": len(samples),
    }
    return Measured(median_of_rounds(rounds).value, stats, samples)


def _merged(path: Path, new: ResultFile) -> ResultFile:
    """Return the file at `path` with the new points. A row with another grid or version is replaced."""
    old, row = read_results(path), new.row(grid.STEP_TIME)
    try:
        before = old.row(grid.STEP_TIME)
    except AsvError as error:
        raise AsvError(f"{path}: {error}") from error
    assert row is not None
    if before is not None and (before.version, before.params) == (row.version, row.params):
        row = replace(row, points={**before.points, **row.points})
    return old.model_copy(update={"params": new.params}).with_row(grid.STEP_TIME, row)
