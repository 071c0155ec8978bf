"""Step times from commit to commit, and the drifts in them that are too slow for one gate to see. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from dpbench.gate.history_line import HistoryLine, machine_of
from dpbench.gate.judgement import FalseAlarms
from dpbench.results.record import Environment, Outcome, Record
from dpbench.sweep.names import VariantName

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
    from scipy.special import betaincinv

    gates = [line for line in lines if line.machine == machine_of(environment)]
    twins = [[each.twin_alarmed for each in line.benchmarks if each.twin_alarmed is not None] for line in gates]
    count, alarms = sum(map(len, twins)), sum(map(sum, twins))
    if count == 0:
        return None
    upper = 1.0 if alarms == count else float(betaincinv(alarms + 1, count - alarms, 0.975))
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
    if record.outcome is not Outcome.OK or record.case.variant is not VariantName.TUNED:
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
