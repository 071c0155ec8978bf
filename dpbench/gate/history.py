"""What earlier runs say of a machine: a JSON line for each gate, series over commits for tier 2, false alarms.

    results/gate/history.jsonl ──> HistoryLine ─┬──> the twins that were called slower
                                                ├──> Series: one benchmark, one machine, a point for each commit
    results/**/*.jsonl, other runs ──> Record ──┘       ──> Drift: a step up that has lasted
    results/gate/self-test-*.json ──> SelfTest ─────> the gates that called equal code slower

`benchmarks/instruments/gate_self_test.py` writes a self-test, with more fields than `SelfTest` reads.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from dpbench.cases.variants import VariantName
from dpbench.errors import GateInputError
from dpbench.gate.judgement import Drift, FalseAlarms, Judgement
from dpbench.judge.decision import Verdict
from dpbench.judge.intervals import clopper_pearson
from dpbench.judge.lasting_steps import MOST_POINTS, lasting_steps
from dpbench.records.record import Environment, Outcome, Record
from dpbench.records.row import Row, RowError, parse_line
from dpbench.records.store import Contents, StoreError, append_row, read_rows
from dpbench.text.files import open_locked, reason_of
from dpbench.text.outputs import try_folder
from dpbench.text.outside import one_line, read_input
from dpbench.text.validated import Frozen, Items, Moment, Positive, day_of

_GATE = "gate"
_PATIENCE_S = 5.0
_MOST_NAMED = 5

OTHER_THRESHOLD = 0.1
"""For series from other runs: a few rounds each, new processes, all cores."""

_Count = Annotated[int, Field(ge=0, le=10**9)]
_TimesByCommit = dict[str, list[float]]


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


class HistoryLine(Row):
    """One gate. The commits are full hashes; `head_commit` is None for the working tree."""

    kind: Literal["gate"] = "gate"
    started_at: Moment
    base_commit: str
    head_commit: str | None
    verdict: Verdict
    environment: Environment
    benchmarks: tuple[StepTimes, ...]


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


def append_gate(
    results: Path, judgement: Judgement, case_ids: Mapping[str, str], twin_alarmed: Mapping[str, bool]
) -> None:
    """The gate took times. The mappings are by benchmark name."""
    if judgement.environment is not None:
        append_row(history_path(results), history_line(judgement, case_ids, twin_alarmed), _PATIENCE_S)


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


def history_path(results: Path) -> Path:
    return results / _GATE / "history.jsonl"


def check_appendable(path: Path) -> None:
    """Raise StoreError if `append_gate` would fail; a file that another process locks is no failure."""
    if os.path.lexists(path):
        try:
            os.close(open_locked(path))
        except BlockingIOError:
            return
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {reason_of(error)}") from error
    try:
        try_folder(path.parent)
    except OSError as error:
        reason = f"{path}: cannot be written: {reason_of(error)}"
        raise StoreError(f"{reason}; allowed: --results with a folder that can be") from error


def read_history(path: Path) -> Contents[HistoryLine]:
    """No rows if there is no file. Raise StoreError."""
    try:
        return read_rows(path, HistoryLine)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Contents(())
        raise


def read_records(results: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """The records of all other runs in the folder, and a note for each unreadable file.

    Rows of other kinds are left out.
    """
    records, notes = list[Record](), list[str]()
    for path in sorted(results.rglob("*.jsonl")):
        if path.relative_to(results).parts[0] == _GATE:
            continue
        try:
            contents = read_rows(path, Record, leaves_out_other_kinds=True)
        except StoreError as error:
            notes.append(f"{error}; the history goes without it")
        else:
            records.extend(contents.rows)
            notes.extend(contents.warnings)
    return tuple(records), tuple(notes)


def series_of(
    lines: Sequence[HistoryLine], records: Iterable[Record], dates: Mapping[str, float], environment: Environment
) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """The series of this machine, and a note on the commits without a date. Pure.

    If a benchmark's case changed, its series has only the new case.
    """
    machine = environment.machine()
    of_gates = _of_lines([line for line in lines if line.environment.machine() == machine])
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
    if environment is None or environment.dirty is not False or environment.machine() != machine:
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


class SelfTest(Row):
    """The drawn gates of equal code while nothing else ran, from so many `rounds` of each benchmark."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["self-test"] = "self-test"
    began: Moment
    environment: Environment
    rounds: _Count
    slower: _Count
    not_slower: _Count

    @property
    def false_alarms(self) -> FalseAlarms:
        gates = self.slower + self.not_slower
        counted = f"resampled from {self.rounds} rounds of the self-test of {self.began[:10]}"
        return FalseAlarms(alarms=self.slower, of=gates, upper=clopper_pearson(self.slower, gates)[1], gates=counted)


def read_self_tests(results: Path) -> tuple[SelfTest, ...]:
    """Raise GateError for an unreadable one."""
    return tuple(map(_read_self_test, sorted((results / _GATE).glob("self-test-*.json"))))


def _read_self_test(path: Path) -> SelfTest:
    try:
        return parse_line(read_input(path), SelfTest)
    except (OSError, RowError) as error:
        reason = one_line(str(error))
        raise GateInputError(f"{path}: is no self-test's result: {reason[:200]}") from error


def measured_false_alarms(
    self_tests: Iterable[SelfTest], lines: Sequence[HistoryLine], environment: Environment | None
) -> FalseAlarms | None:
    """Those of a self-test on such a machine, else those of its twins in the history's `lines`, else None. Pure."""
    if environment is None:
        return None
    for self_test in self_tests:
        if self_test.environment.machine(of_any_name=True) == environment.machine(of_any_name=True):
            return self_test.false_alarms
    return false_alarms_of_twins(lines, environment)


def false_alarms_of_twins(lines: Iterable[HistoryLine], environment: Environment) -> FalseAlarms | None:
    """None if no twin was judged on this machine.

    `upper` is the upper end of the two-sided 95 % interval of Clopper and Pearson.
    """
    gates = [line for line in lines if line.environment.machine() == environment.machine()]
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
