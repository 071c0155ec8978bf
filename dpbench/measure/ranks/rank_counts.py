"""Operators, FLOPs and collectives of one rank."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch import distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from dpbench.records.count_record import Counts, Phase, PhaseCounts, Traffic


@dataclass
class _Tally:
    operators: int = 0
    flops: int = 0
    collectives: Counter[str] = field(default_factory=Counter)
    collective_bytes: Counter[str] = field(default_factory=Counter)


class RankCounts(TorchDispatchMode):
    """Counts by phase, in this thread; on the CPU the backward runs here too."""

    def __init__(self) -> None:
        super().__init__()
        self._tallies: dict[Phase, _Tally] = {}
        self._current = _Tally()

    def enter(self, phase: Phase) -> None:
        self._current = self._tallies.setdefault(phase, _Tally())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tally = self._current
        if func.namespace == "c10d":
            kind = func._opname.strip("_")
            tally.collectives[kind] += 1
            tally.collective_bytes[kind] += sum(t.nbytes for t in tree_leaves(args[0]) if isinstance(t, Tensor))
        else:
            tally.operators += 1
            formula = flop_registry.get(func._overloadpacket)
            tally.flops += int(formula(*args, **(kwargs or {}), out_val=result)) if formula else 0
        return result

    def by_phase(self) -> dict[Phase, PhaseCounts]:
        return {
            phase: PhaseCounts(
                operators=tally.operators,
                flops=tally.flops,
                collectives={
                    kind: Traffic(count=count, size_bytes=tally.collective_bytes[kind])
                    for kind, count in sorted(tally.collectives.items())
                },
            )
            for phase, tally in self._tallies.items()
        }


@contextmanager
def waiting_all_reduces() -> Iterator[None]:
    """Otherwise a hook's operators after an all-reduce run in this thread or in gloo's, which is not counted."""
    all_reduce = dist.all_reduce

    def waiting(*args: Any, **kwargs: Any) -> Any:
        work = all_reduce(*args, **kwargs)
        if work is not None:
            work.wait()
        return work

    dist.all_reduce = waiting
    try:
        yield
    finally:
        dist.all_reduce = all_reduce


def sum_over_ranks(ranks: Sequence[dict[Phase, PhaseCounts]]) -> Counts:
    """A collective counts once; raises RuntimeError if the ranks made different ones."""
    totals = {}
    for phase, first in ranks[0].items():
        of_ranks = [rank[phase] for rank in ranks]
        if any(other.collectives != first.collectives for other in of_ranks):
            raise RuntimeError(f"the ranks' collectives differ in {phase}: {[other.collectives for other in of_ranks]}")
        totals[phase] = PhaseCounts(
            operators=sum(other.operators or 0 for other in of_ranks),
            flops=sum(other.flops or 0 for other in of_ranks),
            collectives=first.collectives,
        )
    return Counts(phases=totals)
