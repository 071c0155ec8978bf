"""The intra-op threads of a case's lanes."""

from collections.abc import Callable

import torch

from dpbench.cases.case import Case
from dpbench.measure.clock import Clock
from dpbench.variants.variant import Variant

_TRIAL_S = 0.1


def candidates(case: Case, variant: Variant) -> tuple[int, ...]:
    """Thread counts of a lane. One thread is faster for small operators, if lanes compute one after the other."""
    if variant.concurrent_lanes:
        return (max(1, case.threads // len(case.lanes_of_a_machine)),)
    return tuple(dict.fromkeys((case.threads, 1)))


def set_fastest(counts: tuple[int, ...], step: Callable[[], object], clock: Clock) -> int:
    """Leave torch with the count under which `step` was fastest, and return it."""
    if len(counts) == 1:
        torch.set_num_threads(counts[0])
        return counts[0]
    fastest = min(counts, key=lambda count: _fastest_step_s(count, step, clock))
    torch.set_num_threads(fastest)
    return fastest


def _fastest_step_s(count: int, step: Callable[[], object], clock: Clock) -> float:
    torch.set_num_threads(count)
    step()
    times_s: list[float] = []
    while sum(times_s) < _TRIAL_S:
        start_s = clock()
        step()
        times_s.append(clock() - start_s)
    return min(times_s)
