"""Alternate the steps of several schemes in one process, and compare them by ratios.

A disturbance of one step hits its neighbours too, so the ratio within a round hardly changes. On a shared 2-core
machine the medians of ten identical processes spread by 21 %.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpbench.judge.intervals import interval_of_median
from dpbench.measure.clock import Clock


@dataclass(frozen=True)
class PairedRatio:
    """The median over rounds, with a 95 % interval."""

    value: float
    low: float
    high: float
    rounds: int


def interleave(
    steps: Mapping[str, Callable[[], object]], clock: Clock, rounds: int, warmup_rounds: int, seed: int
) -> dict[str, list[float]]:
    """Each scheme's step times in seconds. Entry i is from round i, in which each scheme takes one step."""
    order, rng = list(steps), random.Random(seed)
    times_s: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(-warmup_rounds, rounds):
        rng.shuffle(order)
        for name in order:
            start_s = clock()
            steps[name]()
            end_s = clock()
            if i >= 0:
                times_s[name].append(end_s - start_s)
    return times_s


def paired_ratio(times_s: list[float], reference_s: list[float]) -> PairedRatio:
    """The interval is that of the order statistics around the median of the ratios by round."""
    ratios = [time / reference for time, reference in zip(times_s, reference_s, strict=True)]
    low, value, high = interval_of_median(ratios)
    return PairedRatio(value, low, high, len(ratios))
