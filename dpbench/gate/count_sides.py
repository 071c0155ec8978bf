"""Tier 0: exact counts of what one step does, compared between base and head. Pure but for counting.

A cost that grows with the square of n is small at the size of a test, and large in a user's model. So the gate also
compares what is added to a counter when the model or the number of lanes doubles:

    counter                    at n    at 2n     growth
    base    python_calls        900    1,500        600
    head    python_calls        902    1,950      1,048     worse: it grows faster than it did
    other   python_calls        300      900        600     a smaller constant is no faster growth

Of the user's scripts, what their ranks send is compared.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dpbench.analysis.communication import Communication, communication
from dpbench.cases.case import Case
from dpbench.cases.names import borrowed, uses_file
from dpbench.engine.interpret import ChildError
from dpbench.engine.launch import Launcher
from dpbench.engine.messages import CountJob
from dpbench.engine.wrapper_of import has_wrapper
from dpbench.errors import GateError
from dpbench.gate.benchmarks import Benchmarks
from dpbench.gate.causes import blames_of, find_blames
from dpbench.gate.counters import GROWTH, GROWTH_SLACK, is_notable, is_worse, kind_of
from dpbench.gate.judgement import Blame, CounterChange
from dpbench.gate.prepare import Prepared, Progress
from dpbench.gate.settings import BorrowedBenchmark, ScriptBenchmark, limit_s
from dpbench.gate.sides import Sides
from dpbench.gate.tier0_cases import Doubling, Tier0, own_jobs, tier0_of, wrapper_jobs
from dpbench.jobs.count import LIMIT_S, count_scripts, run_jobs
from dpbench.measure.borrowed.lent import PEAK_UNIT
from dpbench.records.count_record import ABSENT, CountRecord, diff
from dpbench.records.record import Outcome
from dpbench.records.script_record import ScriptJob, ScriptRecord
from dpbench.text.outside import by_reason

_LEAST_PEAK_BYTES = 1 << 20
"""The tolerated change of peak memory: free memory that a fork inherits differs by some 100 KB."""

Records = Mapping[str, CountRecord]
"""Records by the names of their cases."""


@dataclass(frozen=True)
class Counters:
    """`gap` says why no case on simulated devices was counted.

    `uncounted` is the number of those that neither commit can count. `new` are the names of scripts that base does not
    have.
    """

    changes: tuple[CounterChange, ...] = ()
    cases: int = 0
    notes: tuple[str, ...] = ()
    uncounted: int = 0
    gap: str | None = None
    by_name: Mapping[str, Case] = field(default_factory=dict)
    blames: tuple[Blame, ...] = ()
    new: tuple[str, ...] = ()

    def beside(self, other: "Counters") -> "Counters":
        return replace(
            self,
            changes=self.changes + other.changes,
            cases=self.cases + other.cases,
            notes=self.notes + other.notes,
            blames=self.blames + other.blames,
            new=self.new + other.new,
        )


def count_sides(prepared: Prepared, benchmarks: Benchmarks, sides: Sides, progress: Progress) -> Counters:
    """Compare the steps of each case, and the scripts. Raise GateError."""
    if 0 not in prepared.tiers:
        return Counters()
    progress("counting one step of base and of head")
    both, scripts = benchmarks.both, prepared.settings.scripts
    has_steps = any(not isinstance(benchmark, BorrowedBenchmark) for benchmark in both)
    is_borrowed_alone = not has_steps and (both or scripts or benchmarks.lost)
    is_new = has_wrapper(sides.head) and not has_wrapper(sides.base)
    of_the_wrapper = wrapper_jobs() if has_wrapper(sides.base) and not is_borrowed_alone else {}
    tier0 = tier0_of(prepared.settings, of_the_wrapper, own_jobs(both), has_wrapper=not is_new)
    thresholds = {f"counts {benchmark.name}": benchmark.threshold for benchmark in both}
    counters = compare_counters(tier0, sides, thresholds, max(map(limit_s, both), default=LIMIT_S))
    if tier0.jobs and not counters.cases and counters.gap is None and 1 not in prepared.tiers:
        why = f"--tiers: 0 counted nothing: {counters.notes[0]}"
        raise GateError(f"{why}; allowed: a benchmark that can be counted, or 1")
    if scripts:
        progress("counting what the ranks of scripts send")
    return compare_scripts(scripts, sides, counters)


def compare_counters(tier0: Tier0, sides: Sides, thresholds: Mapping[str, float], limit_s: float = LIMIT_S) -> Counters:
    """Borrowed benchmarks and uses are counted again if they differ, head first.

    `thresholds` are of the values that they track, by case. `limit_s` is the time for each count. Raise GateError if
    one of them cannot be counted.
    """
    jobs, cases = tier0.jobs, {name: job.case for name, job in tier0.jobs.items()}
    olds, news = count_folders(jobs, (sides.base, sides.head), sides.launch, limit_s)
    uncounted = _uncounted(olds, news, sides)
    changed = compare_records(olds, news, tier0)
    lent = {name: jobs[name] for name, case in cases.items() if borrowed(case.workload) or uses_file(case.workload)}
    differ = {name: lent[name] for name in sorted({change.benchmark for change in changed} & lent.keys())}
    news_again, olds_again = count_folders(differ, (sides.head, sides.base), sides.launch, limit_s)
    again = compare_records(olds_again, news_again, tier0)
    kept, noise, gaps = settled([change for change in changed if change.benchmark in lent], again, thresholds)
    changed = [*(change for change in changed if change.benchmark not in lent), *kept]
    gap = gap_of(list(cases.values()), list(uncounted.values()))
    unexplained = [
        (name, record) for name, record in uncounted.items() if gap is None or not _is_simulated(record.case)
    ]
    return Counters(
        changes=tuple(changed),
        cases=len(cases) - len(uncounted),
        notes=(*by_reason((name, f"not counted: {record.reason}") for name, record in unexplained), *noise),
        uncounted=len(uncounted),
        gap="; ".join(filter(None, [gap, *gaps])) or None,
        by_name=cases,
        blames=find_blames(changed, tier0.jobs_by_benchmark(), sides),
    )


def count_folders(
    jobs: Mapping[str, CountJob], folders: Sequence[Path], launch: Launcher, limit_s: float = LIMIT_S
) -> list[Records]:
    """For each commit the records of these jobs, all counted by one child. Raise GateError."""
    placed = [job.model_copy(update={"folder": str(folder)}) for folder in folders for job in jobs.values()]
    try:
        records = run_jobs(placed, launch=launch, timeout_s=limit_s) if jobs else ()
    except ChildError as error:
        raise GateError(" ".join(str(error).split())) from error
    count = len(jobs)
    return [dict(zip(jobs, records[i * count : (i + 1) * count], strict=True)) for i in range(len(folders))]


def _uncounted(olds: Records, news: Records, sides: Sides) -> Records:
    """The records of the cases that neither side can count. Raise GateError if one side alone cannot."""
    uncounted = {}
    for name, old in olds.items():
        if old.outcome is news[name].outcome is Outcome.SKIPPED:
            uncounted[name] = old
            continue
        for side, record, folder in (("base", old, sides.base), ("head", news[name], sides.head)):
            if record.outcome is not Outcome.OK:
                raise GateError(f"{side}: {name}: {record.why}{_where(record, folder)}")
    return uncounted


def _where(record: CountRecord, folder: Path) -> str:
    """The last file and line of the commit that a traceback names. The last line of a SyntaxError has none."""
    places = re.findall(rf'File "{re.escape(str(folder))}/(.+?)", line (\d+)', record.reason or "")
    return f" ({places[-1][0]}, line {places[-1][1]})" if places else ""


def gap_of(cases: Sequence[Case], uncounted: Sequence[CountRecord]) -> str | None:
    """None if a case on simulated devices was counted, or if there was none to count. Pure."""
    simulated = sum(_is_simulated(case) for case in cases)
    reasons = [record.reason for record in uncounted if _is_simulated(record.case)]
    if not simulated or len(reasons) < simulated:
        return None
    return f"tier 0 counted none of {simulated} cases on simulated devices: {reasons[0]}; run with --tiers 1"


def _is_simulated(case: Case) -> bool:
    return case.devices[0].startswith("sim:")


def compare_records(olds: Records, news: Records, tier0: Tier0) -> list[CounterChange]:
    """The counters that differ, case by case, and those that grow faster. Pure.

    Records that are not OK are left out. Cases that serve growth alone are compared by their growth.
    """
    changed = list[CounterChange]()
    for name, old in olds.items():
        if old.outcome is news[name].outcome is Outcome.OK and name not in tier0.grown:
            changed += changes(name, old, news[name])
    return [*changed, *growth_changes(olds, news, tier0.doublings)]


def changes(name: str, old: CountRecord, new: CountRecord) -> list[CounterChange]:
    """The notable counters of one case that differ; both records must be OK. Pure.

    Of a use that one side cannot do, that alone is compared.
    """
    assert old.counts is not None
    assert new.counts is not None
    olds, news = old.counts.by_name(), new.counts.by_name()
    lone = tuple(_absent_uses(olds) ^ _absent_uses(news))
    return [
        CounterChange(
            benchmark=name,
            counter=change.name,
            base=change.old,
            head=change.new,
            is_worse=is_worse(change.name, olds, news),
        )
        for change in diff(olds, news)
        if is_notable(change.name, change.old or 0, change.new or 0)
        if not change.name.startswith(lone) or change.name.endswith(ABSENT)
    ]


def _absent_uses(counters: Mapping[str, int]) -> set[str]:
    """The beginnings of the names of their counters."""
    return {name.removesuffix(ABSENT) for name, value in counters.items() if value and name.endswith(f".{ABSENT}")}


def growth_changes(olds: Records, news: Records, doublings: Sequence[Doubling]) -> list[CounterChange]:
    """Each counter to which a doubling adds more in `news` than in `olds`, by over `GROWTH_SLACK`."""
    base, head = _counted(olds), _counted(news)
    changed = list[CounterChange]()
    for doubling in doublings:
        small, large = doubling.small, doubling.large
        if not {small, large} <= base.keys() & head.keys():
            continue
        for counter in sorted(head[large]):
            old, new = (side[large].get(counter, 0) - side[small].get(counter, 0) for side in (base, head))
            if kind_of(counter).grows and new > max(old, 0) * (1 + GROWTH_SLACK):
                growth = f"{counter}{GROWTH}"
                changed.append(
                    CounterChange(benchmark=doubling.name, counter=growth, base=old, head=new, is_worse=True)
                )
    return changed


def _counted(records: Records) -> dict[str, Mapping[str, int]]:
    return {name: record.counts.by_name() for name, record in records.items() if record.counts is not None}


def settled(
    first: Sequence[CounterChange], second: Sequence[CounterChange], thresholds: Mapping[str, float]
) -> tuple[list[CounterChange], list[str], list[str]]:
    """The changes that two counts of a case share, notes on the others, and why none can be told.

    A counter must be the same again. A value must grow both times, or shrink both times, by more than its threshold.
    That of base must be the same up to the threshold. Pure.
    """
    kept, notes, gaps = list[CounterChange](), list[str](), list[str]()
    second_changes = {(change.benchmark, change.counter): change for change in second}
    for change in first:
        other = second_changes.get((change.benchmark, change.counter))
        if not change.counter.startswith("value "):
            kept += [change] if change == other else []
            notes += [] if change == other else [f"{change.benchmark}: {change.counter} differs by itself; left out"]
        elif other and None not in (numbers := (change.base, change.head, other.base, other.head)):
            base, head, base_again, head_again = (float(number or 0) for number in numbers)
            least = _LEAST_PEAK_BYTES if PEAK_UNIT in change.counter else 0
            tolerated = max(thresholds[change.benchmark] * abs(base), least)
            more, more_again = head - base, head_again - base_again
            if abs(base_again - base) > tolerated:
                gaps.append(f"{change.benchmark}: base's own values differ: {base:g}, {base_again:g}")
            elif min(abs(more), abs(more_again)) > tolerated and (more > 0) == (more_again > 0):
                kept.append(change)
    return kept, notes, gaps


def compare_scripts(scripts: Sequence[ScriptBenchmark], sides: Sides, counters: Counters) -> Counters:
    """Add what the ranks of the scripts send. Raise GateError if one does not work on head."""
    missing = [script for script in scripts if not (sides.head / script.script).is_file()]
    if missing:
        raise GateError(f"benchmark: script: {missing[0].script!r}: head has no such file; allowed: one that head has")
    jobs = {
        (script.name, side): ScriptJob(folder=str(folder), **script.model_dump())
        for script in scripts
        for side, folder in (("base", sides.base), ("head", sides.head))
        if (folder / script.script).is_file()
    }
    try:
        records = count_scripts(list(jobs.values()), launch=sides.launch) if jobs else ()
    except ChildError as error:
        raise GateError(" ".join(str(error).split())) from error
    by_side = dict(zip(jobs, records, strict=True))
    for name in (script.name for script in scripts):
        counters = counters.beside(_compare_script(name, by_side.get((name, "base")), by_side[name, "head"]))
    return counters


def _compare_script(name: str, base: ScriptRecord | None, head: ScriptRecord) -> Counters:
    if head.reason is not None:
        raise GateError(f"benchmark: script: {name!r}: head: {head.reason}")
    if base is None:
        return Counters(notes=(f"{name}: new: nothing to hold it against, because base has no such file",), new=(name,))
    if base.reason is not None:
        return Counters(notes=(f"{name}: left out: base: {base.reason}",))
    old, new = communication(base.ranks), communication(head.ranks)
    changed, blames = compare_communication(name, old, new)
    sides = (("base", old), ("head", new))
    notes = [f"{name}: {side}: the ranks differ: {sent.differences[0]}" for side, sent in sides if sent.differences]
    if old.steps != new.steps:
        notes.append(f"{name}: {old.steps} steps of base and {new.steps} of head were counted")
    return Counters(changes=changed, cases=1, notes=tuple(notes), blames=blames)


def compare_communication(
    name: str, base: Communication, head: Communication
) -> tuple[tuple[CounterChange, ...], tuple[Blame, ...]]:
    """The counters that differ, and the lines behind those that are worse. Pure."""
    olds, news = base.by_name(), head.by_name()
    changed = tuple(
        CounterChange(
            benchmark=name,
            counter=change.name,
            base=change.old or 0,
            head=change.new or 0,
            is_worse=is_worse(change.name, olds, news),
        )
        for change in diff(olds, news)
    )
    worse = [change for change in changed if change.is_worse]
    return changed, blames_of(worse, {name: (base.details(), head.details())})
