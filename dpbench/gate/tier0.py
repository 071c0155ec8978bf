"""Tier 0: exact counts of what one step does, compared between base and head. Pure but for counting.

Counts have no noise, so one operator, copy, byte, allocation or Python call more is a regression. Beside the cases of
`dpbench counts --check` the gate counts these:

    buckets       small buckets, so that a small model has several: the order and the overlap of their sums show
    pieces        buckets so large that lanes pass them on in pieces; shapes alone
    modes         a forward without gradients, accumulation, interleaved lanes, the loss in the replicas
    large batch   a path that is taken above some number of items
    more steps    a hundred further ones: the memory that each keeps, what few of them do, what late ones do more
    routes        the star, beside the chain that the other cases take
    dispatch      the default dispatch after it has chosen, in sequence and on threads; threads from the start
    uses          what no step has: train and eval in turns, callers at once (uses.py), hooks, copies (busy.py)
    start         modules that the import adds, the construction, the first forward
    choices       which way the default dispatch chooses
    order         copies that wait for each other, turns of lanes, the host's calls before the last lane begins

A cost that grows with the square of n is small at the size of a test, and large in a user's model. So the gate also
compares what is added to a counter when the model or the number of lanes doubles:

    counter                    at n    at 2n     growth
    base    python_calls        900    1,500        600
    head    python_calls        902    1,950      1,048     worse: it grows faster than it did
    other   python_calls        300      900        600     a smaller constant is no faster growth

The code behind a worse counter is found by counting once more with details:

    counter   forward.operators   1,204 -> 1,205
    cause     aten.clone.default   0 -> 1   in DataParallel.forward at dpbench/parallel/module.py:170

Details are matched by what was done and in which function of which file. Line numbers do not count: a line added
above would change them all. They are shown, and the lines of text tell which of a function's lines are new.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dpbench.cases.case import Case
from dpbench.cases.names import borrowed, is_factory
from dpbench.errors import GateError
from dpbench.gate.borrowed import settled
from dpbench.gate.judgement import Blame, Cause, CounterChange
from dpbench.gate.settings import LIMIT_S, Benchmark
from dpbench.gate.tier0_cases import (
    Doubling,
    choice_case,
    doublings,
    growth_cases,
    job_of,
    name_of,
    plain_cases,
    wrapper_cases,
)
from dpbench.processes.count_all import CountingError, run_jobs
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import CountJob
from dpbench.records.counts import ABSENT, CountRecord, Detail, diff
from dpbench.records.record import Outcome

_LANES = ("cpu", "cpu")
"""Lanes of a benchmark that leaves its devices to the machine.

Its counts then do not depend on the machine.
"""

SLOWER_CHOICES, CONFIRMATIONS = "auto.slower_choices", 2

Records = Mapping[str, CountRecord]
"""The records of one commit by the names of their cases."""

_REDUCED = "dependencies.reduced_bytes"
_BETTER_MORE = tuple(f"dependencies.{when}_at_half_bytes" for when in ("ready", "startable", "issued"))


@dataclass(frozen=True)
class Counters:
    """The changed counters and the number of counted cases.

    `uncounted` are the cases that neither commit can count. There is one note for each. `gap` says that no case on
    simulated devices was counted, and why; it is None otherwise. `by_name` has all cases by their names. `blames` has
    the code behind worse counters. `new` are the names of scripts that base does not have.
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
        """Return these counters and those of scripts."""
        return replace(
            self,
            changes=self.changes + other.changes,
            cases=self.cases + other.cases,
            notes=self.notes + other.notes,
            blames=self.blames + other.blames,
            new=other.new,
        )


def counted_cases(benchmarks: Sequence[Benchmark], *, of_the_wrapper: bool) -> dict[str, Case]:
    """Return the cases by name: those of `dpbench counts --check`, those of the gate alone, the user's steps. Pure.

    Set `of_the_wrapper` to False if a commit has no wrapper: then only the user's own steps are left. These are the
    benchmarks whose workload is a factory. Each is counted on simulated devices and on CPU lanes, and named so: the
    benchmark's name, then the devices in words. A call of a borrowed benchmark is counted by itself.
    """
    cases = dict[Case, str]()
    if of_the_wrapper:
        cases = {case: name_of(case) for case in wrapper_cases()}
    for benchmark in benchmarks:
        if borrowed(benchmark.workload) is not None:
            cases[benchmark.case(1, _LANES)] = f"counts {benchmark.name}"
        elif is_factory(benchmark.workload):
            lanes = len(benchmark.devices or _LANES)
            devices = {"simulated device": tuple(f"sim:{i}" for i in range(lanes)), "CPU lane": ("cpu",) * lanes}
            for kind, place in devices.items():
                case = benchmark.case(1, place).model_copy(update={"devices": place})
                cases.setdefault(case, f"{benchmark.name}, on {lanes} {kind}{'' if lanes == 1 else 's'}")
    return {name: case for case, name in cases.items()}


def compare_counters(
    cases: Mapping[str, Case],
    base: Path,
    head: Path,
    launch: Launcher,
    thresholds: Mapping[str, float] | None = None,
    *,
    limit_s: float = LIMIT_S,
) -> Counters:
    """Compare the counts of these cases, by name, of the commits in these two folders.

    Borrowed benchmarks are counted again if they differ, head first. `thresholds` are of the values that they track, by
    case. `limit_s` is the time for each count.
    Raises GateError if one of them cannot be counted.
    """
    olds, news = count_sides(cases, (base, head), launch, limit_s)
    counted, notes, uncounted = 0, dict[str, None](), list[CountRecord]()
    for (name, old), new in zip(olds.items(), news.values(), strict=True):
        if old.outcome is new.outcome is Outcome.SKIPPED:
            uncounted.append(old)
            notes[f"{name}: not counted: {old.reason}"] = None
            continue
        for side, record, folder in (("base", old, base), ("head", new, head)):
            if record.outcome is not Outcome.OK:
                raise GateError(f"{side}: {name}: {record.why}{_where(record, folder)}")
        counted += 1
    changed = compare_records(olds, news)
    lent = {name: case for name, case in cases.items() if borrowed(case.workload)}
    differ = {name: lent[name] for name in sorted({change.benchmark for change in changed} & lent.keys())}
    again = compare_records(*reversed(count_sides(differ, (head, base), launch, limit_s)))
    kept, noise, gaps = settled([each for each in changed if each.benchmark in lent], again, thresholds or {})
    changed = [each for each in changed if each.benchmark not in lent] + kept
    notes |= dict.fromkeys(noise)
    if any(map(_is_slower_choice, changed)):
        changed = _confirmed(
            changed, {name: case for name, case in cases.items() if case == choice_case()}, base, head, launch
        )
    jobs = jobs_by_benchmark({name: job_of(case) for name, case in cases.items()})
    return Counters(
        changes=tuple(changed),
        cases=counted,
        notes=tuple(notes),
        uncounted=len(uncounted),
        gap="; ".join(filter(None, [gap_of(list(cases.values()), uncounted), *gaps])) or None,
        by_name=cases,
        blames=find_blames(changed, jobs, base, head, launch),
    )


def gap_of(cases: Sequence[Case], uncounted: Sequence[CountRecord]) -> str | None:
    """Say why no case on simulated devices was counted; None if one was, or if there was none to count. Pure."""
    simulated = sum(_is_simulated(case) for case in cases)
    reasons = [record.reason for record in uncounted if _is_simulated(record.case)]
    if not simulated or len(reasons) < simulated:
        return None
    return f"tier 0 counted none of {simulated} cases on simulated devices: {reasons[0]}; run with --tiers 1"


def _is_simulated(case: Case) -> bool:
    return case.devices[0].startswith("sim:")


def compare_records(olds: Records, news: Records) -> list[CounterChange]:
    """Return the counters that differ, case by case, and those that grow faster. Pure.

    Records that are not OK are left out. Cases that serve growth alone are compared by their growth.
    """
    growing = {case for case in growth_cases() if case not in plain_cases()}
    changed = list[CounterChange]()
    for name, old in olds.items():
        if old.outcome is news[name].outcome is Outcome.OK and old.case not in growing:
            changed += changes(name, old, news[name])
    return [*changed, *growth_changes(list(olds.values()), list(news.values()))]


def count_sides(
    cases: Mapping[str, Case], folders: Sequence[Path], launch: Launcher, limit_s: float = LIMIT_S
) -> list[Records]:
    """Return for each folder's commit the records of these cases, all counted by one child. Raises GateError."""
    jobs = [job_of(case).model_copy(update={"folder": str(folder)}) for folder in folders for case in cases.values()]
    try:
        records = run_jobs(jobs, launch=launch, timeout_s=limit_s) if jobs else ()
    except CountingError as error:
        raise GateError(" ".join(str(error).split())) from error
    count = len(cases)
    return [dict(zip(cases, records[i * count : (i + 1) * count], strict=True)) for i in range(len(folders))]


def _is_slower_choice(change: CounterChange) -> bool:
    return change.counter == SLOWER_CHOICES and change.is_worse is True


def _confirmed(
    changed: Sequence[CounterChange], cases: Mapping[str, Case], base: Path, head: Path, launch: Launcher
) -> list[CounterChange]:
    """Count the choices of the default dispatch again. They rest on sleeps, which a busy machine makes longer.

    A slower choice is worse if each further count of head has more of them than any of base. Otherwise it is no change.
    """
    folders = [base, head] * CONFIRMATIONS
    counts = [_choices(found) for found in count_sides(cases, folders, launch)]
    is_worse = min(counts[1::2]) > max(counts[::2])
    return [change for change in changed if is_worse or not _is_slower_choice(change)]


def _choices(records: Records) -> int:
    return sum(record.counts.by_name().get(SLOWER_CHOICES, 0) for record in records.values() if record.counts)


def _where(record: CountRecord, folder: Path) -> str:
    """The last file and line of the commit that a traceback names.

    The last line of a SyntaxError has no file name.
    """
    places = re.findall(rf'File "{re.escape(str(folder))}/(.+?)", line (\d+)', record.reason or "")
    return f" ({places[-1][0]}, line {places[-1][1]})" if places else ""


def changes(name: str, old: CountRecord, new: CountRecord) -> list[CounterChange]:
    """Return the counters of one case that differ. Both records must be OK. Pure.

    Lines that are a little more are no change. A phase's turns are better or worse: `dependencies` judges them where
    their order is known. Of a use that one side cannot do, that alone is compared.
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
            is_worse=None if change.name.endswith("forward.turns") else is_worse(change.name, olds, news),
        )
        for change in diff(olds, news)
        if _is_notable(change.name, change.old or 0, change.new or 0)
        if not change.name.startswith(lone) or change.name.endswith(ABSENT)
    ]


def _absent_uses(counters: Mapping[str, int]) -> set[str]:
    """Return the uses that a commit cannot do, each as the beginning of its counters' names."""
    return {name.removesuffix(ABSENT) for name, value in counters.items() if value and name.endswith(f".{ABSENT}")}


def _is_notable(counter: str, old: int, new: int) -> bool:
    """Whether a change is more than what other code of the same cost changes.

    A line costs nothing by itself, and a piece that is a little larger no more than the next hop's copy of it.
    """
    if counter.endswith(".python_lines"):
        return abs(new - old) > max(TOLERATED * old, NOTABLE_LINES)
    if counter.endswith(".python_peak_bytes"):
        return abs(new - old) > max(TOLERATED * old, NOTABLE_BYTES)
    if counter.startswith(_SELDOM):
        return abs(new - old) > TOLERATED * old
    if counter == _PIECE:
        return abs(new - old) > TOLERATED_PIECE * old
    return True


def is_worse(counter: str, olds: Mapping[str, int], news: Mapping[str, int]) -> bool:
    """Whether `news` is worse than `olds` in this counter. A missing counter counts as 0.

    Less is better, except for gradients that are ready early: there a greater share of the reduced bytes is better.
    """
    old, new = olds.get(counter, 0), news.get(counter, 0)
    if counter not in _BETTER_MORE:
        return new > old
    return new * olds.get(_REDUCED, 0) < old * news.get(_REDUCED, 0)


GROWTH = ".growth"
"""The end of a growth's counter, after the name of the counter that grows."""
TOLERATED = 0.05
"""The tolerated increase of lines, and of what is added when something doubles, as a share."""
NOTABLE_LINES = 500
"""The tolerated increase of the lines of a phase: a loop has more, other code for the same work has fewer."""
NOTABLE_BYTES = 1024
"""The tolerated increase of the memory that a call of a borrowed benchmark takes: a few names more cost as much."""
_SELDOM = ("uses.start.", "uses.copied.", "uses.pickled.")
"""What a user does once in a run: an attribute more of the wrapper adds calls to a copy. `TOLERATED` more pass."""
_PIECE, TOLERATED_PIECE = "dependencies.passed_on_bytes", 0.01
"""The largest piece that lanes pass on, and its tolerated increase, as a share."""


def growth_changes(olds: Sequence[CountRecord], news: Sequence[CountRecord]) -> list[CounterChange]:
    """Return each counter to which the doubling adds more in `news` than in `olds`.

    A slower growth is no change, nor is one that is faster by at most `TOLERATED`. Cases that were not counted are left
    out.
    """
    found = list[CounterChange]()
    base, head = _counters(olds), _counters(news)
    for each in doublings():
        if not {each.small, each.large} <= base.keys() & head.keys():
            continue
        for counter in sorted(head[each.large].keys()):
            old, new = (side[each.large].get(counter, 0) - side[each.small].get(counter, 0) for side in (base, head))
            if new > max(old, 0) * (1 + TOLERATED) and _has_growth(counter):
                found.append(_change(each, counter, old, new))
    return found


def _has_growth(counter: str) -> bool:
    return not counter.startswith(("kept.", "more_steps.", "auto.", "uses."))


def growth_name(doubling: Doubling) -> str:
    """Return the benchmark's name in the judgement."""
    return f"growth with {doubling.name}"


def _change(doubling: Doubling, counter: str, old: int, new: int) -> CounterChange:
    return CounterChange(
        benchmark=growth_name(doubling), counter=f"{counter}{GROWTH}", base=old, head=new, is_worse=True
    )


def _counters(records: Sequence[CountRecord]) -> dict[Case, dict[str, int]]:
    ok = (record for record in records if record.outcome is Outcome.OK and record.counts is not None)
    return {record.case: record.counts.by_name() for record in ok if record.counts is not None}


MOST_CAUSES = 5
"""The causes that are named of one counter."""
_MOST_LINES = 3
_DETAILED = re.compile(r"\w+\.(python_calls|python_lines|operators|kernels|flops|copies\..*|host_calls\..*)")
"""The counters that have details. Memory, allocations and dependencies are known as a whole only."""

_Key = tuple[str, str, str, str]


def find_blames(
    changes: Sequence[CounterChange], jobs: Mapping[str, CountJob], base: Path, head: Path, launch: Launcher
) -> tuple[Blame, ...]:
    """Count the cases of worse counters once more, with details, and return a blame for each counter that has some.

    `jobs` are by the names of their benchmarks. Without a worse counter nothing is counted. If a side cannot be counted
    again, there is no blame.
    """
    worse = [each for each in changes if each.is_worse and each.benchmark in jobs and has_details(each.counter)]
    names = dict.fromkeys(each.benchmark for each in worse)
    detailed = {"details": True, "more_steps": 0, "uses": False, "machines": ()}
    wanted = [
        jobs[name].model_copy(update={**detailed, "folder": str(folder)}) for name in names for folder in (base, head)
    ]
    if not wanted:
        return ()
    try:
        records = run_jobs(wanted, launch=launch)
    except CountingError:
        return ()
    sides = dict(zip(names, zip(records[::2], records[1::2], strict=True), strict=True))
    blames = (blame_of(change, *sides[change.benchmark]) for change in worse)
    return tuple(blame for blame in blames if blame.causes)


def has_details(counter: str) -> bool:
    """Whether lines of code are known for this counter."""
    return _DETAILED.fullmatch(counter.removesuffix(GROWTH)) is not None


def blame_of(change: CounterChange, old: CountRecord, new: CountRecord) -> Blame:
    """Return the code behind one worse counter. Pure."""
    found = causes(change.counter.removesuffix(GROWTH), old.details, new.details)
    shown = found[:MOST_CAUSES]
    return Blame(benchmark=change.benchmark, counter=change.counter, causes=tuple(shown), more=len(found) - len(shown))


def causes(counter: str, olds: Iterable[Detail], news: Iterable[Detail]) -> list[Cause]:
    """Return the code whose part of the counter differs: what grew, the most first, then what shrank."""
    before, after = _by_key(counter, olds), _by_key(counter, news)
    found = [_cause(before.get(key, []), after.get(key, [])) for key in before.keys() | after.keys()]
    changed = [cause for cause in found if cause.base != cause.head]
    return sorted(changed, key=lambda c: (c.base - c.head, c.file, c.lines, c.what))


def jobs_by_benchmark(jobs: Mapping[str, CountJob]) -> dict[str, CountJob]:
    """Return these jobs, and those of growths: their larger cases."""
    by_case: dict[Case, CountJob] = {job.case: job for job in jobs.values()}
    growths = {growth_name(each): by_case[each.large] for each in doublings() if each.large in by_case}
    return {**jobs, **growths}


def _by_key(counter: str, details: Iterable[Detail]) -> dict[_Key, list[Detail]]:
    found: dict[_Key, list[Detail]] = defaultdict(list)
    for detail in details:
        if detail.counter == counter:
            key = (detail.what, detail.defined.file if detail.defined else "", detail.place.file, detail.place.function)
            found[key].append(detail)
    return found


def _cause(olds: Sequence[Detail], news: Sequence[Detail]) -> Cause:
    """Return the cause of two groups of details that match. One group may be empty."""
    old, new = sum(each.value for each in olds), sum(each.value for each in news)
    shown = _changed_lines(olds, news) if new > old else _changed_lines(news, olds)
    first = shown[0]
    what = first.what if first.defined is None else f"{first.what} ({first.defined.file}:{first.defined.line})"
    return Cause(
        what=what,
        function=first.place.function,
        file=first.place.file,
        lines=tuple(sorted(each.place.line for each in shown)[:_MOST_LINES]),
        text=first.place.text,
        base=old,
        head=new,
    )


def _changed_lines(fewer: Sequence[Detail], more: Sequence[Detail]) -> Sequence[Detail]:
    """Return the details of `more` whose lines have a greater part than in `fewer`; all if no line has, by line."""
    before, after = _by_text(fewer), _by_text(more)
    grown = [each for each in more if after[each.place.text] > before[each.place.text]]
    return sorted(grown or more, key=lambda each: each.place.line)


def _by_text(details: Iterable[Detail]) -> Counter[str]:
    found: Counter[str] = Counter()
    for detail in details:
        found[detail.place.text] += detail.value
    return found
