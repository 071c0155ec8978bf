"""Tier 0: what a step asks of the machine, counted exactly, of base and of head. No noise, so that one more counts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import Benchmark
from dpbench.results.counts import CountRecord, diff
from dpbench.results.record import Outcome
from dpbench.run.count_all import CountingError, count_all
from dpbench.run.runner import Launcher
from dpbench.sweep.case import Case
from dpbench.sweep.counted_cases import checked_cases
from dpbench.sweep.devices import format_devices
from dpbench.sweep.names import is_factory
from dpbench.sweep.variants import VariantName

_LANES = ("cpu", "cpu")
"""Counted where a benchmark leaves its devices to the machine: counts should not depend on that."""

_REDUCED = "dependencies.reduced_bytes"
_BETTER_MORE = ("dependencies.ready_at_half_bytes", "dependencies.startable_at_half_bytes")


@dataclass(frozen=True)
class Counters:
    """What changed, of how many cases; `notes` tell what could be counted of neither commit."""

    changes: tuple[CounterChange, ...] = ()
    cases: int = 0
    notes: tuple[str, ...] = ()


def counted_cases(benchmarks: Sequence[Benchmark], *, of_the_wrapper: bool) -> tuple[Case, ...]:
    """Of what `dpbench counts --check` counts all that depends on the wrapper, and the user's own steps. Pure."""
    cases = [case for case in checked_cases() if case.variant.name is VariantName.TUNED] if of_the_wrapper else []
    for benchmark in benchmarks:
        if is_factory(benchmark.workload):
            lanes = len(benchmark.devices or _LANES)
            places = (tuple(f"sim:{i}" for i in range(lanes)), ("cpu",) * lanes)
            cases += [benchmark.case(1, place).model_copy(update={"devices": place}) for place in places]
    return tuple(dict.fromkeys(cases))


def compare_counters(cases: Sequence[Case], base: Path, head: Path, launch: Launcher) -> Counters:
    """What changed from one commit's folder to another's. Raises GateError where either cannot be counted."""
    olds, news = _count("base", cases, base, launch), _count("head", cases, head, launch)
    changed, counted, notes = list[CounterChange](), 0, dict[str, None]()
    for old, new in zip(olds, news, strict=True):
        if old.outcome is new.outcome is Outcome.SKIPPED:
            notes[f"{name_of(old.case)}: not counted: {old.reason}"] = None
            continue
        for side, record, tree in (("base", old, base), ("head", new, head)):
            if record.outcome is not Outcome.OK:
                raise GateError(f"{side}: {name_of(record.case)}: {record.why}{_where(record, tree)}")
        counted += 1
        changed += changes(old, new)
    return Counters(tuple(changed), counted, tuple(notes))


def _count(side: str, cases: Sequence[Case], tree: Path, launch: Launcher) -> tuple[CountRecord, ...]:
    try:
        return count_all(cases, folder=tree, launch=launch)
    except CountingError as error:
        raise GateError(f"{side}: {' '.join(str(error).split())}") from error


def _where(record: CountRecord, tree: Path) -> str:
    """The last place in the commit's folder that a traceback names: that of a wrong syntax is not in its last words."""
    places = re.findall(rf'File "{re.escape(str(tree))}/(.+?)", line (\d+)', record.reason or "")
    return f" ({places[-1][0]}, line {places[-1][1]})" if places else ""


def changes(old: CountRecord, new: CountRecord) -> list[CounterChange]:
    """Of one case, both ok. Pure."""
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
    ]


def name_of(case: Case) -> str:
    return f"counts {case.workload} {format_devices(case.devices)}"


def is_worse(counter: str, olds: Mapping[str, int], news: Mapping[str, int]) -> bool:
    """Less is better of all but what is ready early, of which a greater share is. What is not there counts as 0."""
    old, new = olds.get(counter, 0), news.get(counter, 0)
    if counter not in _BETTER_MORE:
        return new > old
    return new * olds.get(_REDUCED, 0) < old * news.get(_REDUCED, 0)
