"""The history of records: each case's step time over the commits of a machine, or over the days of one commit. Pure."""

from collections.abc import Mapping, Sequence

from dpbench.cases.bounds import day_of
from dpbench.cases.case import Case
from dpbench.gate.history import machine_of
from dpbench.records.record import Environment, Outcome, Record
from dpbench.report.headline import place
from dpbench.report.page.history.lines import Change, History, Line, Place, Point, lasting_changes, seconds_of
from dpbench.report.page.inputs import PageInputError, PageInputs
from dpbench.report.page.machines import MachineResults
from dpbench.stats.lasting_steps import NoStepDetectionError
from dpbench.stats.rounds import Estimate, median_of_rounds

_SHORT = 10
_Points = dict[Case, list[tuple[Place, Estimate, int]]]


def histories(
    machines: Sequence[MachineResults], commit_dates: Mapping[str, float], *, with_days: bool
) -> list[History]:
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
            found.append(_history("commit", machine, *_over_commits(own, commit_dates)))
        elif with_days and len(days := _by_day(own[0].records)) > 1:
            found.append(_history("day", machine, *_over_days(days)))
    return found


def check_history(page_inputs: PageInputs) -> None:
    """Raise PageInputError if all records are of one commit and one day. Gates alone have a history."""
    if page_inputs.gates and not page_inputs.records:
        return
    versions = {version_name(record.environment) for record in page_inputs.records if record.environment}
    days = {_day(each) for each in page_inputs.records}
    if len(versions) < 2 and len(days) < 2:
        of = f"{', '.join(versions)} on {', '.join(days)}" if days else "none"
        raise PageInputError(f"--history: the records are of {of}; allowed: records of several commits or days")


def newest(machines: Sequence[MachineResults], found: Sequence[History]) -> list[MachineResults]:
    """Return the machines without those that are an older commit in one of the histories."""
    last = {each.machine: each.places[-1].name for each in found if each.what == "commit"}
    return [
        machine
        for machine in machines
        if machine.environment is None
        or version_name(machine.environment)
        == last.get(machine_of(machine.environment), version_name(machine.environment))
    ]


def version_name(environment: Environment) -> str:
    """Return the commit's first digits, and whether its tree was changed."""
    if environment.commit is None:
        return f"no commit, dpbench {environment.dpbench}"
    return environment.commit[:_SHORT] + (" changed" if environment.dirty else "")


def _over_commits(machines: Sequence[MachineResults], commit_dates: Mapping[str, float]) -> tuple[list[Place], _Points]:
    dated = all(each.environment is not None and each.environment.commit in commit_dates for each in machines)
    dates = {id(machine): _date_s(machine, commit_dates if dated else {}) for machine in machines}
    places: list[Place] = []
    points: _Points = {}
    for each in sorted(machines, key=lambda each: dates[id(each)]):
        assert each.environment is not None
        places.append(Place(version_name(each.environment), day_of(dates[id(each)])))
        for summary in each.summaries:
            if summary.step_time_s is not None:
                points.setdefault(summary.case, []).append((places[-1], summary.step_time_s, summary.rounds_ok))
    return places, points


def _date_s(machine_results: MachineResults, dates: Mapping[str, float]) -> float:
    """Return the time of one commit's records, in seconds since 1970. A changed tree comes after its commit."""
    assert machine_results.environment is not None
    if not dates or machine_results.environment.commit is None:
        return min(seconds_of(record.started_at) for record in machine_results.records)
    return dates[machine_results.environment.commit] + (0.5 if machine_results.environment.dirty else 0.0)


def _by_day(records: Sequence[Record]) -> dict[str, list[Record]]:
    days: dict[str, list[Record]] = {}
    for record in records:
        days.setdefault(_day(record), []).append(record)
    return dict(sorted(days.items()))


def _over_days(days: Mapping[str, Sequence[Record]]) -> tuple[list[Place], _Points]:
    points: _Points = {}
    for day, records in days.items():
        of_case: dict[Case, list[tuple[float, ...]]] = {}
        for record in records:
            if record.outcome is Outcome.OK:
                of_case.setdefault(record.case, []).append(record.step_times_s)
        for case, rounds in of_case.items():
            points.setdefault(case, []).append((Place(day, day), median_of_rounds(rounds), len(rounds)))
    return [Place(day, day) for day in days], points


def _history(what: str, machine: Environment, places: Sequence[Place], points: _Points) -> History:
    lines = [_line(case, own) for case, own in points.items() if len(own) > 1]
    of_name = {line.name: line for line in lines}
    try:
        found = lasting_changes({line.name: [point.time.value for point in line.points] for line in lines})
    except NoStepDetectionError:
        found = None
    changes = (
        None
        if found is None
        else [
            Change(name, (at := of_name[name].points[start].place), at.name, before_s, after_s)
            for name, start, before_s, after_s in found
        ]
    )
    return History(what, machine, places, lines, max((len(line.points) for line in lines), default=0), changes)


def _line(case: Case, found: Sequence[tuple[Place, Estimate, int]]) -> Line:
    variant = str(case.variant)
    points = [Point(at, variant, time, rounds, at.name) for at, time, rounds in found]
    return Line(case.id, {"variant": variant, "setting": place(case)}, points, case)


def _day(record: Record) -> str:
    return day_of(seconds_of(record.started_at))
