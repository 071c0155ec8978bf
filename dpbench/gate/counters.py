"""Tier 0: what a step asks of the machine, counted exactly, of base and of head. No noise, so that one more counts."""

from collections.abc import Sequence
from pathlib import Path

from dpbench.gate.errors import GateError
from dpbench.gate.judgement import CounterChange
from dpbench.results.counts import CountRecord, diff
from dpbench.results.record import Outcome
from dpbench.run.count_all import CountingError, count_all
from dpbench.run.runner import Launcher
from dpbench.sweep.case import Case
from dpbench.sweep.counting import checked_cases
from dpbench.sweep.devices import format_devices
from dpbench.sweep.names import VariantName

_BETTER_MORE = ("dependencies.ready_at_half_bytes", "dependencies.startable_at_half_bytes")


def counted_cases() -> tuple[Case, ...]:
    """Of what `dpbench counts --check` counts, all that depends on the wrapper."""
    return tuple(case for case in checked_cases() if case.variant is VariantName.TUNED)


def compare_counters(cases: Sequence[Case], base: Path, head: Path, launch: Launcher) -> tuple[CounterChange, ...]:
    """What changed between the wrappers of two commits' folders. Raises GateError where one cannot be counted."""
    olds, news = (_counted(cases, side, tree, launch) for side, tree in (("base", base), ("head", head)))
    return tuple(change for old, new in zip(olds, news, strict=True) for change in changes(old, new))


def changes(old: CountRecord, new: CountRecord) -> list[CounterChange]:
    """Of one case, both ok. Pure."""
    assert old.counts is not None
    assert new.counts is not None
    return [
        CounterChange(
            benchmark=name_of(old.case),
            counter=change.name,
            base=change.old,
            head=change.new,
            is_worse=is_worse(change.name, change.old or 0, change.new or 0),
        )
        for change in diff(old.counts.by_name(), new.counts.by_name())
    ]


def name_of(case: Case) -> str:
    return f"counts {case.workload} {format_devices(case.devices)}"


def is_worse(counter: str, old: int, new: int) -> bool:
    """Less is better of all but what is ready early, where more is. A link that is new counts from 0."""
    return new < old if counter in _BETTER_MORE else new > old


def _counted(cases: Sequence[Case], side: str, tree: Path, launch: Launcher) -> tuple[CountRecord, ...]:
    try:
        records = count_all(cases, tree=tree, launch=launch)
    except CountingError as error:
        raise GateError(f"{side}: {' '.join(str(error).split())}") from error
    for record in records:
        if record.outcome is not Outcome.OK:
            raise GateError(f"{side}: {name_of(record.case)}: {record.why}")
    return records
