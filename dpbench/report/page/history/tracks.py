"""The times of each case over commits or days, and where they changed for long. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from dpbench.gate.drift import NoStepDetectionError
from dpbench.gate.history import Point, Series, machine_of
from dpbench.report.page.history.changes import lasting_changes
from dpbench.report.page.inputs import PageInputError, PageInputs
from dpbench.report.page.machines import MachineResults
from dpbench.results.record import Environment, Outcome, Record
from dpbench.stats.rounds import Estimate, median_of_rounds
from dpbench.sweep.bounds import day_of
from dpbench.sweep.case import Case

_SHORT = 10


@dataclass(frozen=True)
class Version:
    """A point on the axis: a commit or a day, with its time in seconds since 1970."""

    name: str
    date_s: float

    @property
    def day(self) -> str:
        return day_of(self.date_s)


@dataclass(frozen=True)
class Track:
    """A case's step time in seconds at some of the versions, oldest first, and the number of rounds of each."""

    case: Case
    points: tuple[tuple[Version, Estimate, int], ...]


@dataclass(frozen=True)
class LastingChange:
    """A lasting change of a case's step time, in seconds, that `since` was the first to have."""

    case: Case
    since: Version
    before_s: float
    after_s: float

    @property
    def times(self) -> float:
        """The time after the change over that before it."""
        return self.after_s / self.before_s


@dataclass(frozen=True)
class MachineHistory:
    """All versions of one machine, oldest first, and the tracks of its cases.

    `of_days` is set if the versions are days of one commit. `can_detect` is not set without asv, which has the rule.
    """

    machine: Environment
    versions: tuple[Version, ...]
    tracks: tuple[Track, ...]
    of_days: bool
    changes: tuple[LastingChange, ...] = ()
    can_detect: bool = True

    @cached_property
    def longest(self) -> int:
        """The number of points of the longest track."""
        return max((len(track.points) for track in self.tracks), default=0)


def histories(
    machines: Sequence[MachineResults], commit_dates: Mapping[str, float], *, with_days: bool
) -> list[MachineHistory]:
    """Return the history of each machine that was measured at several commits.

    `with_days` adds that of each machine with one commit and several days. Commits are in the order of `commit_dates`,
    their dates in seconds since 1970, if all are there. Else they are in the order of their first records.
    """
    groups: dict[Environment, list[MachineResults]] = {}
    for each in machines:
        if each.environment is not None:
            groups.setdefault(machine_of(each.environment), []).append(each)
    found = []
    for machine, own in groups.items():
        if len(own) > 1:
            found.append(_over_commits(machine, own, commit_dates))
        elif with_days and len(days := _by_day(own[0].records)) > 1:
            found.append(_over_days(machine, days))
    return [_with_changes(each) for each in found]


def check_history(found: PageInputs) -> None:
    """Raise PageInputError if all records are of one commit and one day. Gates alone have a history."""
    if found.gates and not found.records:
        return
    versions = {version_name(each.environment) for each in found.records if each.environment}
    days = {_day(each) for each in found.records}
    if len(versions) < 2 and len(days) < 2:
        of = f"{', '.join(versions)} on {', '.join(days)}" if days else "none"
        raise PageInputError(f"--history: the records are of {of}; allowed: records of several commits or days")


def newest(machines: Sequence[MachineResults], found: Sequence[MachineHistory]) -> list[MachineResults]:
    """Return the machines without those that are an older commit in one of the histories."""
    last = {each.machine: each.versions[-1].name for each in found if not each.of_days}
    return [
        each
        for each in machines
        if each.environment is None
        or version_name(each.environment) == last.get(machine_of(each.environment), version_name(each.environment))
    ]


def version_name(environment: Environment) -> str:
    """Return the commit's first digits, and whether its tree was changed."""
    if environment.commit is None:
        return f"no commit, dpbench {environment.dpbench}"
    return environment.commit[:_SHORT] + (" changed" if environment.dirty else "")


def _over_commits(
    machine: Environment, found: Sequence[MachineResults], commit_dates: Mapping[str, float]
) -> MachineHistory:
    dated = all(each.environment is not None and each.environment.commit in commit_dates for each in found)
    points: dict[Case, list[tuple[Version, Estimate, int]]] = {}
    versions = sorted(
        ((_version(each, commit_dates if dated else {}), each) for each in found), key=lambda pair: pair[0].date_s
    )
    for version, each in versions:
        for summary in each.summaries:
            if summary.step_time_s is not None:
                points.setdefault(summary.case, []).append((version, summary.step_time_s, summary.rounds_ok))
    return _history(machine, [version for version, _ in versions], points, of_days=False)


def _version(found: MachineResults, dates: Mapping[str, float]) -> Version:
    """Return the version of one commit's records. A changed tree comes after its commit."""
    environment = found.environment
    assert environment is not None
    first_s = min(seconds_of(record.started_at) for record in found.records)
    if not dates or environment.commit is None:
        return Version(version_name(environment), first_s)
    return Version(version_name(environment), dates[environment.commit] + (0.5 if environment.dirty else 0.0))


def _by_day(records: Iterable[Record]) -> dict[str, list[Record]]:
    days: dict[str, list[Record]] = {}
    for record in records:
        days.setdefault(_day(record), []).append(record)
    return dict(sorted(days.items()))


def _over_days(machine: Environment, days: Mapping[str, Sequence[Record]]) -> MachineHistory:
    versions = [Version(day, datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) for day in days]
    points: dict[Case, list[tuple[Version, Estimate, int]]] = {}
    for version, records in zip(versions, days.values(), strict=True):
        of_case: dict[Case, list[tuple[float, ...]]] = {}
        for record in records:
            if record.outcome is Outcome.OK:
                of_case.setdefault(record.case, []).append(record.step_times_s)
        for case, rounds in of_case.items():
            points.setdefault(case, []).append((version, median_of_rounds(rounds), len(rounds)))
    return _history(machine, versions, points, of_days=True)


def _history(
    machine: Environment,
    versions: Sequence[Version],
    points: Mapping[Case, Sequence[tuple[Version, Estimate, int]]],
    *,
    of_days: bool,
) -> MachineHistory:
    tracks = tuple(Track(case, tuple(own)) for case, own in points.items() if len(own) > 1)
    return MachineHistory(machine, tuple(versions), tracks, of_days)


def _with_changes(found: MachineHistory) -> MachineHistory:
    try:
        changes = tuple(_changes(found))
    except NoStepDetectionError:
        return replace(found, can_detect=False)
    return replace(found, changes=changes)


def _changes(found: MachineHistory) -> Iterator[LastingChange]:
    cases = {track.case.id: track.case for track in found.tracks}
    versions = {version.name: version for version in found.versions}
    for each in lasting_changes([_series(track) for track in found.tracks]):
        yield LastingChange(cases[each.benchmark], versions[each.since_commit], each.before_s, each.after_s)


def _series(track: Track) -> Series:
    """Return the track's times as the gate's rule takes them."""
    points = tuple(Point(version.name, version.date_s, time.value) for version, time, _ in track.points)
    return Series(track.case.id, points)


def seconds_of(moment: str) -> float:
    """Return the seconds since 1970. A moment without a time zone is in UTC."""
    found = datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _day(record: Record) -> str:
    return day_of(seconds_of(record.started_at))
