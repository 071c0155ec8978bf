"""How the counters of a step grow when the model or the number of lanes doubles. Pure.

    counter                    at n    at 2n     growth
    base    python_calls        900    1,500      1,666     thousandths: 2,000 is proportional to n
    head    python_calls        902    1,950      2,161     worse: it grows faster than it did

A cost that grows with the square of n is small at the size of a test, and large in a user's model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.gate.judgement import CounterChange
from dpbench.gate.tier0.gate_cases import CPU, SIMULATED
from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.sweep.case import Case
from dpbench.sweep.variants import VariantId, VariantName

GROWTH = ".growth"
"""The end of a growth's counter, after the name of the counter that grows."""
_BATCH = 16
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


def _case(workload: str, devices: tuple[str, ...]) -> Case:
    return Case(variant=VariantId(VariantName.TUNED), workload=workload, batch=_BATCH, devices=devices, threads=1)
