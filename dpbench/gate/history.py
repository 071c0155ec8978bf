"""Step times from commit to commit, and the drifts in them that are too slow for one gate to see. Pure."""
# MERGED-DOC gate.history_line: """What is kept of a gate, for those that come after it: one line of the history. SCHEMA history 1 first. """
# MERGED-DOC gate.history_file: """The history on disk: a line for each gate, and the records of other runs beside it."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from dpbench.errors import GateError
from dpbench.gate.judgement import FalseAlarms, Verdict
from dpbench.results.files import append_line, open_locked, reason_of
from dpbench.results.record import Environment, Outcome, Record
from dpbench.results.store import Store, StoreError
from dpbench.stats.binomial import clopper_pearson
from dpbench.sweep.variants import VariantName

SCHEMA = 1

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HistoryLineError(ValueError):
    """What is wrong with a line, in one line."""


class StepTimes(BaseModel):
    """One benchmark; `case` is its case's id, as names may come to mean something else.

    The times are medians over rounds; `ratio` is head's over base's. `twin_alarmed` is whether base would have been
    called slower than itself; None where that was not measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    case: str
    base_step_s: Positive
    head_step_s: Positive
    ratio: Positive
    rounds: int = Field(ge=1)
    twin_alarmed: bool | None = None


class HistoryLine(BaseModel):
    """One gate. The commits are whole hashes; `head_commit` None is a tree that was no commit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: int = Field(default=SCHEMA, alias="schema")
    started_at: str
    base_commit: str
    head_commit: str | None
    verdict: Verdict
    environment: Environment
    benchmarks: tuple[StepTimes, ...]

    @property
    def machine(self) -> Environment:
        return machine_of(self.environment)


def machine_of(environment: Environment) -> Environment:
    """What must be equal before step times of two commits are put in one series: all but the code.

    `results.compare` asks for the same of two records, and for the same code.
    """
    return environment.model_copy(update={"dpbench": "", "commit": None, "dirty": None})


def to_line(line: HistoryLine) -> bytes:
    return line.model_dump_json(by_alias=True).encode() + b"\n"


def parse_line(text: bytes) -> HistoryLine:
    """Raises HistoryLineError for what is no line, or one of a schema that this version does not know."""
    try:
        fields: Any = from_json(text)
    except ValueError as error:
        raise HistoryLineError(f"is not JSON: {error}") from error
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if type(schema) is not int or schema < 1:
        raise HistoryLineError(f"has no schema number; allowed: 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise HistoryLineError(f"has schema {schema}, newer than this dpbench knows; allowed: 1 to {SCHEMA}")
    try:
        return HistoryLine.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise HistoryLineError(f"is no line of a gate: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


_GATE = "gate"
_PATIENCE_S = 5.0


class HistoryFileError(GateError):
    """One line that names the file and what is wrong with it."""


@dataclass(frozen=True)
class History:
    """The lines in the order of writing; `warnings` say what was dropped."""

    lines: tuple[HistoryLine, ...]
    warnings: tuple[str, ...] = ()


def history_path(results: Path) -> Path:
    return results / _GATE / "history.jsonl"


def append_history(path: Path, line: HistoryLine) -> None:
    """Write one line and sync it, in a folder that is made where it lacks; waits a little for another gate that writes.

    Where that fails the file is as before, and HistoryFileError is raised.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = _open_patiently(path)
        try:
            append_line(fd, to_line(line), "a line")
        finally:
            os.close(fd)
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be written: {reason_of(error)}") from error


def check_appendable(path: Path) -> None:
    """Raises HistoryFileError where `append_history` could not write, as far as that is known beforehand."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK):
        raise HistoryFileError(f"{path}: cannot be written; allowed: --results with a folder that can be")


def read_history(path: Path) -> History:
    """All lines, none where there is no file. A torn end is dropped with a warning.

    Raises HistoryFileError, for a bad line with its number.
    """
    try:
        with path.open("rb") as file:
            texts = file.readlines()
    except FileNotFoundError:
        return History(())
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be read: {error.strerror}") from error
    torn = texts.pop() if texts and not texts[-1].endswith(b"\n") else b""
    lines = tuple(_parse(path, number, text) for number, text in enumerate(texts, start=1))
    warning = f"{path}: a torn line of {len(torn)} bytes at the end was dropped"
    return History(lines, (warning,) if torn else ())


def read_records(results: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Those of every file below the folder but the gate's own, and a line for what could not be read."""
    records, notes = list[Record](), list[str]()
    for path in sorted(results.rglob("*.jsonl")):
        if path.relative_to(results).parts[0] == _GATE:
            continue
        try:
            contents = Store(path).read()
        except StoreError as error:
            notes.append(f"{error}; the history goes without it")
        else:
            records.extend(contents.records)
            notes.extend(contents.warnings)
    return tuple(records), tuple(notes)


def _parse(path: Path, number: int, text: bytes) -> HistoryLine:
    try:
        return parse_line(text)
    except HistoryLineError as error:
        raise HistoryFileError(f"{path}: line {number} {error}") from error


def _open_patiently(path: Path) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return open_locked(path)[0]
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


_MOST_NAMED = 5


@dataclass(frozen=True)
class Point:
    """One commit: when it was made, in seconds since 1970, and the median of what was measured of it."""

    commit: str
    date_s: float
    step_s: float

    @property
    def day(self) -> str:
        return datetime.fromtimestamp(self.date_s, UTC).date().isoformat()


@dataclass(frozen=True)
class Series:
    """One benchmark on one machine, oldest commit first; a record's benchmark is its case's id."""

    benchmark: str
    points: tuple[Point, ...]


def series_of(
    lines: Sequence[HistoryLine], records: Iterable[Record], dates: Mapping[str, float], environment: Environment
) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """The series of the machine of this environment, and a line on the commits that were left out.

    `dates` has the commits of the history in question, as ``git log --format='%H %ct' HEAD`` gives them; commits of
    one second stay in the order in which they were measured. A benchmark whose case was changed begins anew.
    """
    machine = machine_of(environment)
    measured = _of_lines([line for line in lines if line.machine == machine])
    measured.update(_of_records(records, machine))
    series = [Series(name, _points(times, dates)) for name, times in measured.items()]
    unknown = list(dict.fromkeys(commit for times in measured.values() for commit in times if commit not in dates))
    return tuple(each for each in series if each.points), _left_out(unknown)


def false_alarms_of_twins(lines: Iterable[HistoryLine], environment: Environment) -> FalseAlarms | None:
    """How many twins were called slower on the machine of this environment; None where none was measured.

    `upper` is the upper end of the two-sided 95 % interval of Clopper and Pearson.
    """
    gates = [line for line in lines if line.machine == machine_of(environment)]
    twins = [[each.twin_alarmed for each in line.benchmarks if each.twin_alarmed is not None] for line in gates]
    count, alarms = sum(map(len, twins)), sum(map(sum, twins))
    if count == 0:
        return None
    _, upper = clopper_pearson(alarms, count)
    measured = sum(map(bool, twins))
    told = f"twins, one for each benchmark, of {measured} {'gate' if measured == 1 else 'gates'} on this machine"
    return FalseAlarms(alarms=alarms, of=count, upper=upper, gates=told)


def _of_lines(lines: Sequence[HistoryLine]) -> dict[str, dict[str, list[float]]]:
    """Step times by benchmark and commit. Of a benchmark only the case that it has in its last line."""
    last_case = {times.name: times.case for line in lines for times in line.benchmarks}
    measured: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        for times in line.benchmarks:
            if times.case != last_case[times.name]:
                continue
            by_commit = measured.setdefault(times.name, {})
            by_commit.setdefault(line.base_commit, []).append(times.base_step_s)
            if line.head_commit is not None:
                by_commit.setdefault(line.head_commit, []).append(times.head_step_s)
    return measured


def _of_records(records: Iterable[Record], machine: Environment) -> dict[str, dict[str, list[float]]]:
    """Likewise, an entry for each round; a file read twice is no second measurement."""
    measured: dict[str, dict[str, list[float]]] = {}
    for record in {(record.run, *record.key): record for record in records}.values():
        if (commit := _commit_of(record, machine)) is not None:
            by_commit = measured.setdefault(record.case.id, {})
            by_commit.setdefault(commit, []).append(median(record.samples_s))
    return measured


def _commit_of(record: Record, machine: Environment) -> str | None:
    """None for a record that tells nothing of a commit's speed on this machine."""
    environment, metrics = record.environment, record.metrics
    if record.outcome is not Outcome.OK or record.case.variant.name is not VariantName.TUNED:
        return None
    if environment is None or environment.dirty is not False or machine_of(environment) != machine:
        return None
    return None if metrics is None or metrics.is_throttled else environment.commit


def _points(times: Mapping[str, Sequence[float]], dates: Mapping[str, float]) -> tuple[Point, ...]:
    points = [Point(commit, dates[commit], median(found)) for commit, found in times.items() if commit in dates]
    return tuple(sorted(points, key=lambda point: point.date_s))


def _left_out(commits: Sequence[str]) -> tuple[str, ...]:
    if not commits:
        return ()
    named = ", ".join(commit[:10] for commit in commits[:_MOST_NAMED])
    more = f" and {len(commits) - _MOST_NAMED} more" if len(commits) > _MOST_NAMED else ""
    return (f"history: measured commits that are not behind head were left out: {named}{more}",)
