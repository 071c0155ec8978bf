"""The history of step times: a JSON line for each gate, and series over commits for tier 2.

    results/gate/history.jsonl ──> HistoryLine ─┐
                                                ├──> Series: one benchmark, one machine, a point for each commit
    results/**/*.jsonl, other runs ──> Record ──┘

SCHEMA history
    1  first.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from dpbench.cases.bounds import Items, Moment, Positive, day_of
from dpbench.cases.variants import VariantName, present_id
from dpbench.errors import GateError
from dpbench.gate.judgement import Judgement, Verdict
from dpbench.records.record import Environment, Outcome, Record
from dpbench.records.store import Store, StoreError, holds_elastic_records
from dpbench.text.files import append_once, open_locked, reason_of
from dpbench.text.outside import one_line, open_input, what_is_wrong

SCHEMA = 1
_GATE = "gate"
_PATIENCE_S = 5.0
_MOST_NAMED = 5

_TimesByCommit = dict[str, list[float]]


class HistoryFileError(GateError):
    """The history cannot be read or written. One line that names the file and the reason."""


class StepTimes(BaseModel):
    """The step times of one benchmark in one gate, as medians over rounds.

    `case` is the id of the benchmark's case, because a settings file may give the name to another case later. `ratio`
    is head's time over base's. `twin_alarmed` is whether the rule would have called base's twin slower than base;
    None if the twin was not judged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    case: Annotated[str, AfterValidator(present_id)]
    base_step_s: Positive
    head_step_s: Positive
    ratio: Positive
    rounds: Items
    twin_alarmed: bool | None = None


class HistoryLine(BaseModel):
    """One gate. The commits are full hashes; `head_commit` is None for the working tree."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: int = Field(default=SCHEMA, alias="schema")
    started_at: Moment
    base_commit: str
    head_commit: str | None
    verdict: Verdict
    environment: Environment
    benchmarks: tuple[StepTimes, ...]


@dataclass(frozen=True)
class History:
    """The lines in the order of writing, and a warning for a torn line."""

    lines: tuple[HistoryLine, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """One commit: its date in seconds since 1970, and the median of its step times in seconds."""

    commit: str
    date_s: float
    step_s: float

    @property
    def day(self) -> str:
        return day_of(self.date_s)


@dataclass(frozen=True)
class Series:
    """One benchmark on one machine, oldest commit first. A record's benchmark is its case's id."""

    benchmark: str
    points: tuple[Point, ...]


def machine_of(environment: Environment) -> Environment:
    """The environment without the code: two step times are comparable if all of this is equal.

    `results.compare` asks for the same of two records, and for equal code as well.
    """
    return environment.model_copy(update={"dpbench": "", "commit": None, "dirty": None})


def history_line(
    judgement: Judgement, case_ids: Mapping[str, str], twin_alarmed: Mapping[str, bool], environment: Environment
) -> HistoryLine:
    """The history's line of a gate with times. The mappings are by benchmark name."""
    assert judgement.base.commit is not None
    return HistoryLine(
        started_at=judgement.started_at,
        base_commit=judgement.base.commit,
        head_commit=judgement.head.commit,
        verdict=judgement.verdict,
        environment=environment,
        benchmarks=tuple(
            StepTimes(
                name=time.benchmark,
                case=case_ids[time.benchmark],
                base_step_s=time.base_step_s,
                head_step_s=time.head_step_s,
                ratio=time.ratio.value,
                rounds=time.rounds,
                twin_alarmed=twin_alarmed.get(time.benchmark),
            )
            for time in judgement.times
            if time.base_step_s and time.head_step_s and time.ratio
        ),
    )


def to_line(line: HistoryLine) -> bytes:
    """The JSON of a line, with a newline at its end."""
    return line.model_dump_json(by_alias=True).encode() + b"\n"


def history_path(results: Path) -> Path:
    """Where a results folder keeps the history."""
    return results / _GATE / "history.jsonl"


def append_history(path: Path, line: HistoryLine) -> None:
    """Write and sync one line, in a folder that is made if needed.

    Waits up to 5 s for another gate that writes. If that fails, the file stays as it was, and HistoryFileError is
    raised.
    """
    try:
        append_once(path, to_line(line), "a line", _PATIENCE_S)
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be written: {reason_of(error)}") from error


def check_appendable(path: Path) -> None:
    """Raise HistoryFileError if `append_history` would fail. A file that another gate writes now is fine."""
    if os.path.lexists(path):
        try:
            os.close(open_locked(path))
        except BlockingIOError:
            return
        except OSError as error:
            raise HistoryFileError(f"{path}: cannot be written: {reason_of(error)}") from error
    existing = next(place for place in path.absolute().parents if place.exists())
    if not os.access(existing, os.W_OK):
        raise HistoryFileError(f"{path}: cannot be written; allowed: --results with a folder that can be")


def read_history(path: Path, *, leave_out_bad_lines: bool = False) -> History:
    """Return all lines; none if there is no file.

    A torn line at the end is dropped with a warning. Raises HistoryFileError, with its number for a bad line. Or bad
    lines are left out, and one warning names the first and how many there are.
    """
    try:
        with open_input(path) as file:
            texts = file.readlines()
    except FileNotFoundError:
        return History(())
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be read: {error.strerror}") from error
    torn = texts.pop() if texts and not texts[-1].endswith(b"\n") else b""
    lines, bad = list[HistoryLine](), list[str]()
    for number, text in enumerate(texts, start=1):
        try:
            lines.append(parse_history_line(f"{path}: line {number}", text))
        except HistoryFileError as error:
            if not leave_out_bad_lines:
                raise
            bad.append(str(error))
    left_out = [f"{bad[0]}; {len(bad)} bad {'line was' if len(bad) == 1 else 'lines were'} left out"] if bad else []
    warnings = [f"{path}: a torn line of {len(torn)} bytes at the end was dropped"] if torn else []
    return History(tuple(lines), (*left_out, *warnings))


def parse_history_line(place: str, text: bytes) -> HistoryLine:
    """Return the gate of a line. Raise HistoryFileError, whose text begins with `place`."""
    try:
        fields: Any = from_json(text)
    except ValueError as error:
        raise HistoryFileError(one_line(f"{place} is not JSON: {error}")) from error
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if type(schema) is not int or schema < 1:
        raise HistoryFileError(f"{place} has no schema number; allowed: 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise HistoryFileError(f"{place} has schema {schema}, newer than this dpbench knows; allowed: 1 to {SCHEMA}")
    try:
        return HistoryLine.model_validate(fields)
    except ValidationError as error:
        raise HistoryFileError(f"{place} is no line of a gate: {what_is_wrong(error)}") from error


def read_records(results: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Return the records of all other runs in the folder, and a note for each unreadable file.

    Elastic runs are left out: their steps are timed otherwise. So are the records that the pictures are drawn from.
    """
    records, notes = list[Record](), list[str]()
    for path in sorted(results.rglob("*.jsonl")):
        if path.relative_to(results).parts[0] in (_GATE, "pictures"):
            continue
        try:
            if holds_elastic_records(path):
                continue
            contents = Store(path).read()
        except StoreError as error:
            notes.append(f"{error}; the history goes without it")
        else:
            records.extend(contents.records)
            notes.extend(contents.warnings)
    return tuple(records), tuple(notes)


def series_of(
    lines: Sequence[HistoryLine], records: Iterable[Record], dates: Mapping[str, float], environment: Environment
) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """Return the series of this machine, and a note on the commits without a date. Pure.

    `dates` has the date of each commit of the repository. Commits of one second stay in the order of measurement. If
    a benchmark's case changed, its series has only the new case.
    """
    machine = machine_of(environment)
    measured = _of_lines([line for line in lines if machine_of(line.environment) == machine])
    measured.update(_of_records(records, machine))
    series = [Series(name, _points(times, dates)) for name, times in measured.items()]
    unknown = list(dict.fromkeys(commit for times in measured.values() for commit in times if commit not in dates))
    return tuple(each for each in series if each.points), _left_out(unknown)


def _of_lines(lines: Sequence[HistoryLine]) -> dict[str, _TimesByCommit]:
    """Step times by benchmark and commit, for each benchmark's last case only."""
    last_case = {times.name: times.case for line in lines for times in line.benchmarks}
    measured: dict[str, _TimesByCommit] = {}
    for line in lines:
        for times in line.benchmarks:
            if times.case != last_case[times.name]:
                continue
            by_commit = measured.setdefault(times.name, {})
            by_commit.setdefault(line.base_commit, []).append(times.base_step_s)
            if line.head_commit is not None:
                by_commit.setdefault(line.head_commit, []).append(times.head_step_s)
    return measured


def _of_records(records: Iterable[Record], machine: Environment) -> dict[str, _TimesByCommit]:
    """Median step times of rounds by case and commit. A record that is there twice counts once."""
    measured: dict[str, _TimesByCommit] = {}
    for record in {(record.run, *record.key): record for record in records}.values():
        if (commit := _commit_of(record, machine)) is not None:
            by_commit = measured.setdefault(record.case.id, {})
            by_commit.setdefault(commit, []).append(median(record.step_times_s))
    return measured


def _commit_of(record: Record, machine: Environment) -> str | None:
    """The clean commit whose tuned step was timed on this machine without throttling, or None."""
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
    return (f"history: measured commits that this repository does not have were left out: {named}{more}",)
