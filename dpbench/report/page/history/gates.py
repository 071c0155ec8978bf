"""The gate's history by machine: each benchmark's times in order of time, and where they changed for long. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dpbench.gate.drift import NoStepDetectionError
from dpbench.gate.history import HistoryLine, StepTimes, machine_of, series_of
from dpbench.gate.judgement import Drift, Verdict
from dpbench.report.page.history.changes import lasting_changes
from dpbench.report.page.history.tracks import seconds_of
from dpbench.results.record import Environment
from dpbench.sweep.outside import one_line

_SHORT = 10
_WORKING_TREE = "worktree"


@dataclass(frozen=True)
class Gate:
    """A gate. Its name is head's commit, with a number if the machine has several gates of it."""

    name: str
    line: HistoryLine

    @property
    def day(self) -> str:
        return datetime.fromisoformat(self.line.started_at).date().isoformat()

    @property
    def is_slower(self) -> bool:
        return self.line.verdict is Verdict.SLOWER


@dataclass(frozen=True)
class GateChange:
    """A lasting change of a benchmark's step time, in seconds. `gate` is the first that measured the commit."""

    benchmark: str
    commit: str
    gate: Gate
    before_s: float
    after_s: float

    @property
    def times(self) -> float:
        """The time after the change over that before it."""
        return self.after_s / self.before_s


@dataclass(frozen=True)
class GateHistory:
    """The gates of one machine, oldest first, and each benchmark's times in the gates that measured its last case.

    `others` counts the times of earlier cases of the benchmarks. `longest` is the most commits of a benchmark.
    `can_detect` is not set without asv, which has the rule for lasting changes.
    """

    machine: Environment
    gates: tuple[Gate, ...]
    benchmarks: Mapping[str, Sequence[tuple[Gate, StepTimes]]]
    others: int
    longest: int
    changes: tuple[GateChange, ...] = ()
    can_detect: bool = True


def gate_histories(lines: Sequence[HistoryLine], commit_dates: Mapping[str, float]) -> list[GateHistory]:
    """Return the history of each machine. A line that was read twice counts once.

    Commits are in the order of `commit_dates`, in seconds since 1970, if all are there. Else they are in the order of
    their first gates.
    """
    groups: dict[Environment, list[HistoryLine]] = {}
    for line in sorted(dict.fromkeys(lines), key=lambda each: seconds_of(each.started_at)):
        groups.setdefault(machine_of(line.environment), []).append(line)
    return [_history(machine, own, commit_dates) for machine, own in groups.items()]


def short_commit(commit: str | None) -> str:
    """Return the commit's first digits, or ``worktree``."""
    return _WORKING_TREE if commit is None else one_line(commit)[:_SHORT]


def commits_of(lines: Sequence[HistoryLine]) -> list[str]:
    """Return all commits, in the order of their first lines."""
    found = [commit for line in lines for commit in (line.base_commit, line.head_commit)]
    return list(dict.fromkeys(commit for commit in found if commit is not None))


def _history(machine: Environment, lines: Sequence[HistoryLine], commit_dates: Mapping[str, float]) -> GateHistory:
    gates = _named(lines)
    last_case = {times.name: times.case for line in lines for times in line.benchmarks}
    benchmarks: dict[str, list[tuple[Gate, StepTimes]]] = {}
    others = 0
    for gate in gates:
        for times in gate.line.benchmarks:
            if times.case == last_case[times.name]:
                benchmarks.setdefault(times.name, []).append((gate, times))
            else:
                others += 1
    commits = commits_of(lines)
    is_dated = all(commit in commit_dates for commit in commits)
    dates = commit_dates if is_dated else {commit: float(place) for place, commit in enumerate(commits)}
    series, _ = series_of(lines, (), dates, machine)
    longest = max((len(each.points) for each in series), default=0)
    try:
        changes = tuple(_changes(lasting_changes(series), benchmarks))
    except NoStepDetectionError:
        return GateHistory(machine, gates, benchmarks, others, longest, can_detect=False)
    return GateHistory(machine, gates, benchmarks, others, longest, changes)


def _named(lines: Sequence[HistoryLine]) -> tuple[Gate, ...]:
    """Return the gates with a name each: the second one of a commit ends in ``(2)``."""
    seen: dict[str, int] = {}
    gates = []
    for line in lines:
        short = short_commit(line.head_commit)
        seen[short] = seen.get(short, 0) + 1
        gates.append(Gate(short if seen[short] == 1 else f"{short} ({seen[short]})", line))
    return tuple(gates)


def _changes(
    found: Sequence[Drift], benchmarks: Mapping[str, Sequence[tuple[Gate, StepTimes]]]
) -> Iterator[GateChange]:
    for each in found:
        gate = next(
            gate
            for gate, _ in benchmarks[each.benchmark]
            if each.since_commit in (gate.line.base_commit, gate.line.head_commit)
        )
        yield GateChange(each.benchmark, each.since_commit, gate, each.before_s, each.after_s)
