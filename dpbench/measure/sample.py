"""Step x clock x rules -> raw samples."""
# MERGED-DOC measure.window: """What is read beside the samples, over exactly the window in which they are taken."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import torch

from dpbench.measure.clock import Clock
from dpbench.measure.gpu.telemetry import Telemetry
from dpbench.measure.memory import peak_device_bytes, peak_reserved_bytes, peak_rss_bytes, reset_device_peaks
from dpbench.measure.stopping import StopRule, WarmUp
from dpbench.measure.team import Team
from dpbench.results.readings import DeviceTelemetry, Reading


class Window:
    """The devices of one process; `begin` and `end` are called at the edges, with the devices idle.

    What was read is there after `end`: by device, but for `peak_rss_bytes`.
    """

    telemetry: dict[str, DeviceTelemetry | str]
    peak_device_bytes: dict[str, Reading]
    peak_reserved_bytes: dict[str, Reading]
    peak_rss_bytes: int

    def __init__(self, devices: Sequence[torch.device], telemetry: Telemetry) -> None:
        self._devices, self._telemetry = devices, telemetry

    def begin(self) -> None:
        reset_device_peaks(self._devices)
        self._telemetry.begin()

    def end(self, steps: int) -> None:
        self.telemetry = self._telemetry.end(steps)
        self.peak_device_bytes = peak_device_bytes(self._devices)
        self.peak_reserved_bytes = peak_reserved_bytes(self._devices)
        self.peak_rss_bytes = peak_rss_bytes()


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
