"""Tier 0: exact counts of what one step does, compared between base and head.

Counts have no noise, so one operator, copy, byte, allocation or Python call more is a regression.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.judgement import Blame, CounterChange
from dpbench.gate.settings import Benchmark
from dpbench.gate.tier0.blame import find_blames, jobs_by_benchmark
from dpbench.gate.tier0.gate_cases import KEPT_STEPS, choice_case, gate_cases, kept_cases
from dpbench.gate.tier0.growth import growth_cases, growth_changes
from dpbench.results.counts import CountRecord, diff
from dpbench.results.record import Outcome
from dpbench.run.count_all import CountingError, run_jobs
from dpbench.run.launch import Launcher
from dpbench.run.messages import CountJob
from dpbench.sweep.case import Case
from dpbench.sweep.counted_cases import checked_cases
from dpbench.sweep.devices import format_devices
from dpbench.sweep.names import Mode, is_factory
from dpbench.sweep.variants import VariantName

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
