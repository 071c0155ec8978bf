"""How many intra-op threads a case's lanes get."""

from collections.abc import Callable

import torch

from dpbench.measure.clock import Clock
from dpbench.sweep.case import Case
from dpbench.variants.variant import Variant

_TRIAL_S = 0.1


def candidates(case: Case, variant: Variant) -> tuple[int, ...]:
    """Thread counts worth trying, of a lane.

    Lanes that compute at the same time share the case's total between them. A scheme with one lane at work at
    a time may have it all, or one thread alone, which is faster where operators are small.
    """
    if variant.concurrent_lanes:
        return (max(1, case.threads // len(case.devices)),)
    return tuple(dict.fromkeys((case.threads, 1)))


def set_fastest(counts: tuple[int, ...], step: Callable[[], object], clock: Clock) -> int:
    """Leave torch with the count under which `step` was fastest, and say which; a single one is not tried."""
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
