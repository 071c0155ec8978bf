"""Tier 0: exact counts of what one step does, compared between base and head. Pure but for counting.

Counts have no noise, so one operator, copy, byte, allocation or Python call more is a regression. Beside the cases of
`dpbench counts --check` the gate counts these:

    buckets     small buckets, so that a small model has several: the order and the overlap of their sums show
    inference   a forward without gradients
    kept        a hundred further steps: the memory that each keeps
    choices     which way the default dispatch chooses

A cost that grows with the square of n is small at the size of a test, and large in a user's model. So the gate also
compares how counters grow when the model or the number of lanes doubles:

    counter                    at n    at 2n     growth
    base    python_calls        900    1,500      1,666     thousandths: 2,000 is proportional to n
    head    python_calls        902    1,950      2,161     worse: it grows faster than it did

The code behind a worse counter is found by counting once more with details:

    counter   forward.operators   1,204 -> 1,205
    cause     aten.clone.default   0 -> 1   in DataParallel.forward at dpbench/parallel/module.py:170

Details are matched by what was done and in which function of which file. Line numbers do not count: a line added
above would change them all. They are shown, and the lines of text tell which of a function's lines are new.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.cases.case import Case
from dpbench.cases.counted_cases import checked_cases
from dpbench.cases.devices import format_devices
from dpbench.cases.names import Mode, is_factory
from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import GateError
from dpbench.gate.judgement import Blame, Cause, CounterChange
from dpbench.gate.settings import Benchmark
from dpbench.processes.count_all import CountingError, run_jobs
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import CountJob
from dpbench.records.counts import CountRecord, diff
from dpbench.records.details import Detail
from dpbench.records.record import Outcome

_LANES = ("cpu", "cpu")
"""Lanes of a benchmark that leaves its devices to the machine.

Its counts then do not depend on the machine.
"""

_REDUCED = "dependencies.reduced_bytes"
_BETTER_MORE = tuple(f"dependencies.{when}_at_half_bytes" for when in ("ready", "startable", "issued"))


@dataclass(frozen=True)
class Counters:
    """The changed counters and the number of counted cases.

    `uncounted` are the cases that neither commit can count. There is one note for each. `gap` says that no case on
    simulated devices was counted, and why; it is None otherwise. `by_name` has all cases by their names. `blames` has
    the code behind worse counters.
    """

    changes: tuple[CounterChange, ...] = ()
    cases: int = 0
    notes: tuple[str, ...] = ()
    uncounted: int = 0
    gap: str | None = None
    by_name: Mapping[str, Case] = field(default_factory=dict)
    blames: tuple[Blame, ...] = ()


def counted_cases(benchmarks: Sequence[Benchmark], *, of_the_wrapper: bool) -> tuple[Case, ...]:
    """Return the tuned cases of `dpbench counts --check`, those of the gate alone, and the user's own steps. Pure.

    Set `of_the_wrapper` to False if a commit has no wrapper: then only the user's own steps are left. These are the
    benchmarks whose workload is a factory. Each is counted on simulated devices and on CPU lanes.
    """
    cases = list[Case]()
    if of_the_wrapper:
        cases += [*plain_cases(), *growth_cases()]
    for benchmark in benchmarks:
        if is_factory(benchmark.workload):
            lanes = len(benchmark.devices or _LANES)
            places = (tuple(f"sim:{i}" for i in range(lanes)), ("cpu",) * lanes)
            cases += [benchmark.case(1, place).model_copy(update={"devices": place}) for place in places]
    return tuple(dict.fromkeys(cases))


def plain_cases() -> tuple[Case, ...]:
    """Return the wrapper's cases whose counters are compared one by one. Pure."""
    return (*(case for case in checked_cases() if case.variant.name is VariantName.TUNED), *gate_cases())


def compare_counters(cases: Sequence[Case], base: Path, head: Path, launch: Launcher) -> Counters:
    """Compare the counts of the commits in these two folders.

    Raises GateError if one of them cannot be counted.
    """
    olds, news = count_side("base", cases, base, launch), count_side("head", cases, head, launch)
    counted, notes, uncounted = 0, dict[str, None](), list[CountRecord]()
    for old, new in zip(olds, news, strict=True):
        if old.outcome is new.outcome is Outcome.SKIPPED:
            uncounted.append(old)
            notes[f"{name_of(old.case)}: not counted: {old.reason}"] = None
            continue
        for side, record, folder in (("base", old, base), ("head", new, head)):
            if record.outcome is not Outcome.OK:
                raise GateError(f"{side}: {name_of(record.case)}: {record.why}{_where(record, folder)}")
        counted += 1
    changed = compare_records(olds, news)
    jobs = jobs_by_benchmark({name_of(case): job_of(case) for case in cases})
    return Counters(
        changes=tuple(changed),
        cases=counted,
        notes=tuple(notes),
        uncounted=len(uncounted),
        gap=gap_of(cases, uncounted),
        by_name={name_of(case): case for case in cases},
        blames=find_blames(changed, jobs, base, head, launch),
    )


def gap_of(cases: Sequence[Case], uncounted: Sequence[CountRecord]) -> str | None:
    """Say why no case on simulated devices was counted; None if one was, or if there was none to count. Pure."""
    simulated = sum(_is_simulated(case) for case in cases)
    reasons = [record.reason for record in uncounted if _is_simulated(record.case)]
    if not simulated or len(reasons) < simulated:
        return None
    return f"tier 0 counted none of {simulated} cases on simulated devices: {reasons[0]}; allowed: --tiers 1"


def _is_simulated(case: Case) -> bool:
    return case.devices[0].startswith("sim:")


def compare_records(olds: Sequence[CountRecord], news: Sequence[CountRecord]) -> list[CounterChange]:
    """Return the counters that differ, case by case, and those that grow faster. Pure.

    Records that are not OK are left out. Cases that serve growth alone are compared by their growth.
    """
    growing = {case for case in growth_cases() if case not in plain_cases()}
    changed = list[CounterChange]()
    for old, new in zip(olds, news, strict=True):
        if old.outcome is new.outcome is Outcome.OK and old.case not in growing:
            changed += changes(old, new)
    return [*changed, *growth_changes(olds, news)]


def count_side(side: str, cases: Sequence[Case], folder: Path, launch: Launcher) -> tuple[CountRecord, ...]:
    """Return the records of these cases for the commit in `folder`. Raises GateError with the name of the side."""
    try:
        return run_jobs([job_of(case) for case in cases], folder=folder, launch=launch) if cases else ()
    except CountingError as error:
        raise GateError(f"{side}: {' '.join(str(error).split())}") from error


def job_of(case: Case) -> CountJob:
    """Return the job of a case.

    On CPU lanes the lines of cases that grow are counted, and the memory that steps keep.
    """
    is_on_cpu = "cpu" in case.devices
    return CountJob(
        case=case,
        lines=is_on_cpu and case in growth_cases(),
        kept_steps=KEPT_STEPS if case in kept_cases() else 0,
        choices=case == choice_case(),
    )


def _where(record: CountRecord, folder: Path) -> str:
    """The last file and line of the commit that a traceback names.

    The last line of a SyntaxError has no file name.
    """
    places = re.findall(rf'File "{re.escape(str(folder))}/(.+?)", line (\d+)', record.reason or "")
    return f" ({places[-1][0]}, line {places[-1][1]})" if places else ""


def changes(old: CountRecord, new: CountRecord) -> list[CounterChange]:
    """Return the counters of one case that differ. Both records must be OK. Pure."""
    assert old.counts is not None
    assert new.counts is not None
    olds, news = old.counts.by_name(), new.counts.by_name()
    return [
        CounterChange(
            benchmark=name_of(old.case),
            counter=change.name,
            base=change.old,
            head=change.new,
            is_worse=is_worse(change.name, olds, news),
        )
        for change in diff(olds, news)
        if not change.name.endswith(".python_lines")  # a line costs nothing by itself; growth compares them
    ]


def name_of(case: Case) -> str:
    """The benchmark's name in the judgement, such as ``counts mlp/tiny cpu*4``.

    A mode, and parameters of the variant, follow the devices if they are not the usual ones.
    """
    unusual = [str(case.mode)] if case.mode is not Mode.TRAIN else []
    parameters = str(case.variant).removeprefix(VariantName.TUNED)
    return " ".join(
        ["counts", case.workload, format_devices(case.devices), *unusual, *([parameters] if parameters else [])]
    )


def is_worse(counter: str, olds: Mapping[str, int], news: Mapping[str, int]) -> bool:
    """Whether `news` is worse than `olds` in this counter. A missing counter counts as 0.

    Less is better, except for gradients that are ready early: there a greater share of the reduced bytes is better.
    """
    old, new = olds.get(counter, 0), news.get(counter, 0)
    if counter not in _BETTER_MORE:
        return new > old
    return new * olds.get(_REDUCED, 0) < old * news.get(_REDUCED, 0)


_BATCH = 16
SIMULATED = tuple(f"sim:{i}" for i in range(4))
CPU = ("cpu",) * 4
_SMALL_BUCKETS = VariantId(VariantName.TUNED).with_parameters(bucket_bytes=2048, first_bucket_bytes=1024)
"""Five buckets for the 11 KiB of ``mlp/tiny``."""


KEPT_STEPS = 100
"""Further steps in which the kept memory is read. In the first of them caches fill: half as fast after each hundred."""


def gate_cases() -> tuple[Case, ...]:
    """Return the cases, each with the tuned wrapper."""
    return (
        _case("mlp/tiny", SIMULATED, variant=_SMALL_BUCKETS),
        _case("transformer/tiny", SIMULATED, Mode.INFER),
        _case("transformer/tiny", CPU, Mode.INFER),
    )


def kept_cases() -> tuple[Case, ...]:
    """Return the cases after which further steps are taken. All are counted anyway."""
    return (_case("mlp/tiny", CPU), _case("transformer/tiny", CPU, Mode.INFER))


def choice_case() -> Case:
    """Return the case beside which the choices of the default dispatch are counted."""
    return _case("transformer/tiny", CPU, Mode.INFER)


def _case(
    workload: str,
    devices: tuple[str, ...],
    mode: Mode = Mode.TRAIN,
    variant: str = VariantName.TUNED,
) -> Case:
    return Case(variant=VariantId(variant), workload=workload, batch=_BATCH, devices=devices, mode=mode, threads=1)


GROWTH = ".growth"
"""The end of a growth's counter, after the name of the counter that grows."""
TOLERATED = 0.05
"""The tolerated increase of a growth, as a share. Other counters name each call and operator more."""


@dataclass(frozen=True)
class Doubling:
    """Two cases, the second with twice as much of what `name` says."""

    name: str
    small: Case
    large: Case


def doublings() -> tuple[Doubling, ...]:
    """Return what is doubled. On simulated devices the host's calls are counted, on CPU lanes the Python calls."""
    return (
        Doubling("parameters and modules sim", _case("many/tiny", SIMULATED[:2]), _case("many/small", SIMULATED[:2])),
        Doubling("parameters and modules cpu", _case("many/tiny", CPU[:2]), _case("many/small", CPU[:2])),
        Doubling("lanes sim", _case("mlp/tiny", SIMULATED[:2]), _case("mlp/tiny", SIMULATED)),
        Doubling("lanes cpu", _case("mlp/tiny", CPU[:2]), _case("mlp/tiny", CPU)),
    )


def growth_cases() -> tuple[Case, ...]:
    """Return the cases whose counters are compared by their growth alone."""
    return tuple(dict.fromkeys(case for each in doublings() for case in (each.small, each.large)))


def growth_changes(olds: Sequence[CountRecord], news: Sequence[CountRecord]) -> list[CounterChange]:
    """Return each counter that grows faster in `news` than in `olds`, in thousandths of its value at n.

    A slower growth is no change: a constant cost more makes the growth less. Neither is one that is faster by at most
    `TOLERATED`: a proportional cost more raises it so much. Cases that were not counted are left out.
    """
    found = list[CounterChange]()
    base, head = _counters(olds), _counters(news)
    for each in doublings():
        if not {each.small, each.large} <= base.keys() & head.keys():
            continue
        for counter in sorted(head[each.small].keys() & head[each.large].keys()):
            old = _thousandths(base[each.small].get(counter, 0), base[each.large].get(counter, 0))
            new = _thousandths(head[each.small][counter], head[each.large][counter])
            if old is not None and new is not None and new > old * (1 + TOLERATED):
                found.append(_change(each, counter, old, new))
    return found


def growth_name(doubling: Doubling) -> str:
    """Return the benchmark's name in the judgement."""
    return f"growth with {doubling.name}"


def _change(doubling: Doubling, counter: str, old: int, new: int) -> CounterChange:
    return CounterChange(
        benchmark=growth_name(doubling), counter=f"{counter}{GROWTH}", base=old, head=new, is_worse=True
    )


def _thousandths(small: int, large: int) -> int | None:
    return 1000 * large // small if small else None


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
    wanted = {name: jobs[name].model_copy(update={"details": True, "kept_steps": 0}) for name in names}
    if not wanted:
        return ()
    try:
        olds = run_jobs(list(wanted.values()), folder=base, launch=launch)
        news = run_jobs(list(wanted.values()), folder=head, launch=launch)
    except CountingError:
        return ()
    sides = dict(zip(wanted, zip(olds, news, strict=True), strict=True))
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
