"""A sample is the time of one step, or of several without a wait between them. The window is the time of all samples;
memory and telemetry are read at its edges.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from dpbench.measure.clock import Clock
from dpbench.measure.compilation import compilations, forget_reasons, reasons
from dpbench.measure.gpu.telemetry import Telemetry
from dpbench.measure.memory import peak_device_bytes, peak_reserved_bytes, peak_rss_bytes, reset_device_peaks
from dpbench.measure.ranks.team import Team
from dpbench.measure.stopping import NotSettledError, StopRule, WarmUp
from dpbench.records.readings import DeviceTelemetry, Reading


class Window:
    """Call `begin` and `end` with the devices idle; the readings exist afterwards."""

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
    """`times_s` has the slowest rank's seconds for each sample's steps, and `skew_s` these less the fastest rank's.

    `lag_s` is the median of this rank's time less the fastest's. `stopped_by` is ``interval`` or ``budget``. In
    `compile_s` seconds the slowest rank compiled before them.
    """

    times_s: tuple[float, ...]
    skew_s: tuple[float, ...]
    lag_s: float
    warmup_steps: int
    stopped_by: str
    compile_s: float


def settle(
    step: Callable[[], object],
    trials_left: Callable[[], int | None],
    *,
    max_s: float = 0.0,
    clock: Clock = time.perf_counter,
) -> float:
    """Take two steps or more, until the scheme has no trials left and its times are steady, or for `max_s`.

    Return the last step's seconds. Raises NotSettledError.
    """
    warmup, begin_s, step_s = WarmUp(max_s=max_s, trials_left=trials_left), clock(), 0.0
    while not warmup.done:
        start_s = clock()
        step()
        end_s = clock()
        step_s = end_s - start_s
        warmup.add(step_s, end_s - begin_s)
    return step_s


def sample(
    step: Callable[[], object],
    clock: Clock,
    team: Team,
    warmup: WarmUp,
    rule: StopRule,
    *,
    window: Window,
    steps_per_sample: int = 1,
) -> Samples:
    """Take steps until `warmup` is done, then samples until `rule` stops; all ranks must call this.

    Raises NotSettledError, also if torch compiles during the samples.
    """
    begin_s = clock()
    while not warmup.done:
        _, (slowest_s, _, elapsed_s) = _timed(step, steps_per_sample, clock, team, begin_s)
        warmup.add(slowest_s, elapsed_s)
    # Objects that exist now stay, so that no collection searches them during a sample.
    gc.collect()
    gc.freeze()
    skews_s: list[float] = []
    lags_s: list[float] = []
    forget_reasons()
    compiled = compilations().count
    window.begin()
    begin_s = clock()
    while rule.stopped_by is None:
        own_s, (slowest_s, skew_s, elapsed_s) = _timed(step, steps_per_sample, clock, team, begin_s)
        rule.add(slowest_s, elapsed_s)
        skews_s.append(skew_s)
        lags_s.append(own_s - slowest_s + skew_s)
    window.end(len(skews_s) * steps_per_sample)
    gc.unfreeze()
    if any(team.gather(compilations().count != compiled)):
        raise NotSettledError(f"torch.compile compiled again while samples were taken: {reasons()}")
    warmup_steps = warmup.steps * steps_per_sample
    compile_s = max(team.gather(compilations().seconds))
    return Samples(tuple(rule.samples_s), tuple(skews_s), median(lags_s), warmup_steps, rule.stopped_by, compile_s)


def _timed(
    step: Callable[[], object], steps: int, clock: Clock, team: Team, begin_s: float
) -> tuple[float, tuple[float, float, float]]:
    team.line_up()
    start_s = clock()
    for _ in range(steps):
        step()
    end_s = clock()
    return end_s - start_s, team.slowest(end_s - start_s, end_s - begin_s)
