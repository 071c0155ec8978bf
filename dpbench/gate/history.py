"""What earlier runs say of a machine: a JSON line for each gate, series over commits for tier 2, false alarms.

    results/gate/history.jsonl ──> HistoryLine ─┬──> the twins that were called slower
                                                ├──> Series: one benchmark, one machine, a point for each commit
    results/**/*.jsonl, other runs ──> Record ──┘       ──> Drift: a step up that has lasted
    results/gate/self-test-*.json ──> SelfTest ─────> the gates that called equal code slower

`benchmarks/gate_self_test.py` writes a self-test, with more fields than `SelfTest` reads.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from dpbench.cases.variants import VariantName
from dpbench.errors import GateError
from dpbench.gate.judgement import Drift, FalseAlarms, Judgement
from dpbench.judge.decision import Verdict
from dpbench.judge.intervals import clopper_pearson
from dpbench.judge.lasting_steps import MOST_POINTS, lasting_steps
from dpbench.records.record import Environment, Outcome, Record, why_other_schema
from dpbench.records.store import Store, StoreError, holds_elastic_records
from dpbench.text.files import append_once, open_locked, reason_of
from dpbench.text.outputs import try_folder
from dpbench.text.outside import one_line, open_input, read_input
from dpbench.text.validated import Frozen, Items, Moment, Positive, day_of, what_is_wrong

SCHEMA = 1
_GATE = "gate"
_PATIENCE_S = 5.0
_MOST_NAMED = 5

OTHER_THRESHOLD = 0.1
"""For series from other runs: a few rounds each, new processes, all cores."""
EQUAL = "equal"
"""The condition of a self-test in which head is base and nothing else runs."""

_Count = Annotated[int, Field(ge=0, le=10**9)]
_TimesByCommit = dict[str, list[float]]


class HistoryFileError(GateError):
    pass


class StepTimes(Frozen):
    """The step times of one benchmark in one gate, as medians over rounds.

    `case` is the id of the benchmark's case, because a settings file may give the name to another case later.
    `twin_alarmed` is whether the rule would have called base's twin slower than base; None if the twin was not judged.
    """

    name: str
    case: str
    base_step_s: Positive
    head_step_s: Positive
    ratio: Positive
    rounds: Items
    twin_alarmed: bool | None = None


class HistoryLine(Frozen):
    """One gate. The commits are full hashes; `head_commit` is None for the working tree."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: int = Field(default=SCHEMA, alias="schema")
    started_at: Moment
    base_commit: str
    head_commit: str | None
    verdict: Verdict
    environment: Environment
    benchmarks: tuple[StepTimes, ...]


@dataclass(frozen=True)
class History:
    lines: tuple[HistoryLine, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """`date` is in seconds since 1970."""

    commit: str
    date_s: float
    step_s: float

    @property
    def day(self) -> str:
        return day_of(self.date_s)


@dataclass(frozen=True)
class Series:
    """Oldest commit first. A record's benchmark is its case's id."""

    benchmark: str
    points: tuple[Point, ...]


def machine_of(environment: Environment) -> Environment:
    """The environment without the code: two step times are comparable if all of this is equal."""
    return environment.model_copy(update={"dpbench": "", "commit": None, "dirty": None})


def append_gate(
    results: Path, judgement: Judgement, case_ids: Mapping[str, str], twin_alarmed: Mapping[str, bool]
) -> None:
    """The gate took times. The mappings are by benchmark name."""
    if judgement.environment is not None:
        append_history(history_path(results), history_line(judgement, case_ids, twin_alarmed))


def history_line(judgement: Judgement, case_ids: Mapping[str, str], twin_alarmed: Mapping[str, bool]) -> HistoryLine:
    assert judgement.base.commit is not None
    assert judgement.environment is not None
    return HistoryLine(
        started_at=judgement.started_at,
        base_commit=judgement.base.commit,
        head_commit=judgement.head.commit,
        verdict=judgement.verdict,
        environment=judgement.environment,
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
    return line.model_dump_json(by_alias=True).encode() + b"\n"


def history_path(results: Path) -> Path:
    return results / _GATE / "history.jsonl"


def append_history(path: Path, line: HistoryLine) -> None:
    """Sync the line, in a folder that is made if needed. Wait up to 5 s for another gate that writes.

    Raise HistoryFileError if that fails; the file then stays as it was.
    """
    try:
        append_once(path, to_line(line), "a line", _PATIENCE_S)
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be written: {reason_of(error)}") from error


def check_appendable(path: Path) -> None:
    """Raise HistoryFileError if `append_history` would fail."""
    if os.path.lexists(path):
        try:
            os.close(open_locked(path))
        except BlockingIOError:
            return
        except OSError as error:
            raise HistoryFileError(f"{path}: cannot be written: {reason_of(error)}") from error
    try:
        try_folder(path.parent)
    except OSError as error:
        reason = f"{path}: cannot be written: {reason_of(error)}"
        raise HistoryFileError(f"{reason}; allowed: --results with a folder that can be") from error


def read_history(path: Path, *, leave_out_bad_lines: bool = False) -> History:
    """Return all lines; none if there is no file. A torn line at the end is dropped with a warning.

    Raise HistoryFileError, with its number for a bad line. Or bad lines are left out, with one warning.
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
    """Raise HistoryFileError, whose text begins with `place`."""
    try:
        fields: Any = from_json(text)
    except ValueError as error:
        raise HistoryFileError(one_line(f"{place} is not JSON: {error}")) from error
    if problem := why_other_schema(fields, SCHEMA):
        raise HistoryFileError(f"{place} {problem}")
    try:
        return HistoryLine.model_validate(fields)
    except ValidationError as error:
        raise HistoryFileError(f"{place} is no line of a gate: {what_is_wrong(error)}") from error


def read_records(results: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """The records of all other runs in the folder, and a note for each unreadable file.

    Elastic runs are left out: their steps are timed otherwise. So are the records of the README's pictures.
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
    """The series of this machine, and a note on the commits without a date. Pure.

    If a benchmark's case changed, its series has only the new case.
    """
    machine = machine_of(environment)
    of_gates = _of_lines([line for line in lines if machine_of(line.environment) == machine])
    measured = {**of_gates, **_of_records(records, machine)}
    series = [Series(name, _points(times, dates)) for name, times in measured.items()]
    unknown = list(dict.fromkeys(commit for times in measured.values() for commit in times if commit not in dates))
    return tuple(one for one in series if one.points), _left_out(unknown)


def _of_lines(lines: Sequence[HistoryLine]) -> dict[str, _TimesByCommit]:
    """Times by commit, of each benchmark's last case only."""
    last_case = {times.name: times.case for line in lines for times in line.benchmarks}
    measured: dict[str, _TimesByCommit] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for times in line.benchmarks:
            if times.case == last_case[times.name]:
                measured[times.name][line.base_commit].append(times.base_step_s)
                if line.head_commit is not None:
                    measured[times.name][line.head_commit].append(times.head_step_s)
    return measured


def _of_records(records: Iterable[Record], machine: Environment) -> dict[str, _TimesByCommit]:
    """Median step times of rounds. A record that is there twice counts once."""
    measured: dict[str, _TimesByCommit] = defaultdict(lambda: defaultdict(list))
    for record in {(record.run, *record.key): record for record in records}.values():
        if (commit := _commit_of(record, machine)) is not None:
            measured[record.case.id][commit].append(median(record.step_times_s))
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
    points = [Point(commit, dates[commit], median(steps_s)) for commit, steps_s in times.items() if commit in dates]
    return tuple(sorted(points, key=lambda point: point.date_s))


def _left_out(commits: Sequence[str]) -> tuple[str, ...]:
    if not commits:
        return ()
    named = ", ".join(commit[:10] for commit in commits[:_MOST_NAMED])
    more = f" and {len(commits) - _MOST_NAMED} more" if len(commits) > _MOST_NAMED else ""
    return (f"history: measured commits that this repository does not have were left out: {named}{more}",)


def drifts(series: Iterable[Series], threshold_by_name: Mapping[str, float]) -> tuple[Drift, ...]:
    """The lasting steps up of each series by more than its threshold, oldest first. Pure.

    `before_s` is the level before the step, and `after_s` that before the next one, or the present one. Raise
    UnusableMachineError without asv.
    """
    return tuple(
        Drift(
            benchmark=one.benchmark,
            before_s=before_s,
            after_s=after_s,
            since_commit=one.points[start].commit,
            since=one.points[start].day,
            points=min(len(one.points), MOST_POINTS),
        )
        for one in series
        for start, before_s, after_s in lasting_steps(
            [point.step_s for point in one.points], threshold_by_name.get(one.benchmark, OTHER_THRESHOLD)
        )
    )


class _Part(Frozen):
    model_config = ConfigDict(extra="ignore")


class _Drawn(_Part):
    slower: _Count
    undecided: _Count
    passed: _Count


class _Spread(_Part):
    rounds: int


class _Condition(_Part):
    condition: str
    spreads: tuple[_Spread, ...]
    drawn: _Drawn


class SelfTest(_Part):
    tested: tuple[_Condition, ...]
    began: str
    environment: Environment

    @model_validator(mode="after")
    def _has_false_alarms(self) -> Self:
        equal = [condition for condition in self.tested if condition.condition == EQUAL]
        if len(equal) != 1 or not equal[0].spreads or not any(equal[0].drawn.model_dump().values()):
            raise ValueError(f"tested needs one condition {EQUAL!r}, with spreads and drawn gates")
        datetime.fromisoformat(self.began)
        return self

    @property
    def false_alarms(self) -> FalseAlarms:
        """The drawn gates of equal code while nothing else ran."""
        equal = next(condition for condition in self.tested if condition.condition == EQUAL)
        counted = f"resampled from {equal.spreads[0].rounds} rounds of the self-test of {self.began[:10]}"
        alarms, gates = equal.drawn.slower, sum(equal.drawn.model_dump().values())
        return FalseAlarms(alarms=alarms, of=gates, upper=clopper_pearson(alarms, gates)[1], gates=counted)


def read_self_tests(results: Path) -> tuple[SelfTest, ...]:
    """Raise GateError for an unreadable one."""
    return tuple(map(_read_self_test, sorted((results / _GATE).glob("self-test-*.json"))))


def _read_self_test(path: Path) -> SelfTest:
    try:
        return SelfTest.model_validate_json(read_input(path))
    except (OSError, ValidationError) as error:
        reason = one_line(str(error))
        raise GateError(f"{path}: is no self-test's result: {reason[:200]}") from error


def measured_false_alarms(
    self_tests: Iterable[SelfTest], lines: Sequence[HistoryLine], environment: Environment | None
) -> FalseAlarms | None:
    """Those of a self-test on such a machine, else those of its twins in the history's `lines`, else None. Pure."""
    if environment is None:
        return None
    for self_test in self_tests:
        if _kind(self_test.environment) == _kind(environment):
            return self_test.false_alarms
    return false_alarms_of_twins(lines, environment)


def _kind(environment: Environment) -> Environment:
    """The machine without its host name: each container of one kind of machine has another."""
    return machine_of(environment).model_copy(update={"hostname": ""})


def false_alarms_of_twins(lines: Iterable[HistoryLine], environment: Environment) -> FalseAlarms | None:
    """None if no twin was judged on this machine.

    `upper` is the upper end of the two-sided 95 % interval of Clopper and Pearson.
    """
    gates = [line for line in lines if machine_of(line.environment) == machine_of(environment)]
    twins = [
        [benchmark.twin_alarmed for benchmark in line.benchmarks if benchmark.twin_alarmed is not None]
        for line in gates
    ]
    count, alarms = sum(map(len, twins)), sum(map(sum, twins))
    if count == 0:
        return None
    _, upper = clopper_pearson(alarms, count)
    measured = sum(map(bool, twins))
    counted = f"twins, one for each benchmark, of {measured} {'gate' if measured == 1 else 'gates'} on this machine"
    return FalseAlarms(alarms=alarms, of=count, upper=upper, gates=counted)
