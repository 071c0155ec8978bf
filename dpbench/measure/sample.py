"""Step x clock x rules -> raw samples."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from dpbench.measure.clock import Clock
from dpbench.measure.stopping import StopRule, WarmUp
from dpbench.measure.team import Team


@dataclass(frozen=True)
class Samples:
    """`times_s` and `skew_s` have one entry per timed step, in order.

    `lag_s` is the median of this rank's time less the fastest's.
    """

    times_s: tuple[float, ...]
    skew_s: tuple[float, ...]
    lag_s: float
    warmup_steps: int
    stopped_by: str


class Edges(Protocol):
    """What is read at the edges of the window in which samples are taken."""

    def begin(self) -> None: ...

    def end(self, steps: int) -> None:
        """The window is over; `steps` were taken in it."""


def sample(
    step: Callable[[], object], clock: Clock, team: Team, warmup: WarmUp, rule: StopRule, *, window: Edges
) -> Samples:
    """Warm up until settled, then time single steps until the rule has enough."""
    begin_s = clock()
    while not warmup.done:
        _, (slowest_s, _, elapsed_s) = _timed(step, clock, team, begin_s)
        warmup.add(slowest_s, elapsed_s)
    # What lives by now stays: the collector need not walk it again within a sample.
    gc.collect()
    gc.freeze()
    skews_s: list[float] = []
    lags_s: list[float] = []
    window.begin()
    begin_s = clock()
    while rule.stopped_by is None:
        own_s, (slowest_s, skew_s, elapsed_s) = _timed(step, clock, team, begin_s)
        rule.add(slowest_s, elapsed_s)
        skews_s.append(skew_s)
        lags_s.append(own_s - slowest_s + skew_s)
    window.end(len(skews_s))
    gc.unfreeze()
    return Samples(tuple(rule.samples_s), tuple(skews_s), median(lags_s), warmup.steps, rule.stopped_by)


def _timed(
    step: Callable[[], object], clock: Clock, team: Team, begin_s: float
) -> tuple[float, tuple[float, float, float]]:
    """This rank's time, and what the team makes of it."""
    team.line_up()
    start_s = clock()
    step()
    end_s = clock()
    return end_s - start_s, team.slowest(end_s - start_s, end_s - begin_s)
