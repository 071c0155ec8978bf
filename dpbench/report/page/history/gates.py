"""The history of gates: each benchmark's times of base and head over the gates of a machine. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dpbench.gate.history import HistoryLine, machine_of, series_of
from dpbench.gate.judgement import Verdict
from dpbench.records.record import Environment
from dpbench.report.page.history.lines import Change, History, Line, Place, Point, lasting_changes, seconds_of
from dpbench.stats.lasting_steps import NoStepDetectionError
from dpbench.stats.rounds import Estimate
from dpbench.text.outside import one_line

BASE, HEAD = "base", "head"
_SHORT = 10
_WORKING_TREE = "worktree"


def gate_histories(lines: Sequence[HistoryLine], commit_dates: Mapping[str, float]) -> list[History]:
    """Return the history of each machine. A line that was read twice counts once.

    A place is a gate. Its name is head's commit, with a number if the machine has several gates of it. A line has the
    gates that measured its benchmark's last case. Commits are in the order of `commit_dates`, in seconds since 1970, if
    all are there. Else they are in the order of their first gates.
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


def _history(machine: Environment, lines: Sequence[HistoryLine], commit_dates: Mapping[str, float]) -> History:
    places = _places(lines)
    last_case = {times.name: times.case for line in lines for times in line.benchmarks}
    points: dict[str, list[Point]] = {}
    first: dict[tuple[str, str | None], Place] = {}
    others = 0
    for line, place in zip(lines, places, strict=True):
        for times in line.benchmarks:
            if times.case != last_case[times.name]:
                others += 1
                continue
            for side, commit, time_s in (
                (BASE, line.base_commit, times.base_step_s),
                (HEAD, line.head_commit, times.head_step_s),
            ):
                first.setdefault((times.name, commit), place)
                ratio = f"{times.ratio:.3f}" if side == HEAD else ""
                cells = {"ratio": ratio, "verdict": str(line.verdict)}
                point = Point(place, side, Estimate(time_s, None, None), times.rounds, commit, cells)
                points.setdefault(times.name, []).append(point)
    commits = commits_of(lines)
    is_dated = all(commit in commit_dates for commit in commits)
    dates = commit_dates if is_dated else {commit: float(number) for number, commit in enumerate(commits)}
    series = {each.benchmark: each.points for each in series_of(lines, (), dates, machine)[0]}
    try:
        found = lasting_changes({name: [point.step_s for point in own] for name, own in series.items()})
    except NoStepDetectionError:
        changes = None
    else:
        changes = [
            Change(name, first[name, (commit := series[name][start].commit)], commit, before_s, after_s)
            for name, start, before_s, after_s in found
        ]
    longest = max(map(len, series.values()), default=0)
    named = [Line(name, {"benchmark": name}, own) for name, own in points.items()]
    return History("gate", machine, places, named, longest, changes, others)


def _places(lines: Sequence[HistoryLine]) -> list[Place]:
    """Return a place for each gate: the second one of a commit ends in ``(2)``."""
    seen: dict[str, int] = {}
    places = []
    for line in lines:
        short = short_commit(line.head_commit)
        seen[short] = seen.get(short, 0) + 1
        day = datetime.fromisoformat(line.started_at).date().isoformat()
        name = short if seen[short] == 1 else f"{short} ({seen[short]})"
        places.append(Place(name, day, line.verdict is Verdict.SLOWER))
    return places
