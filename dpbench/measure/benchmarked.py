"""Anyone's step under pytest-benchmark: all devices idle at both ends of each round, as many rounds as asked for."""

import gc
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from dpbench.measure.clock import Clock, make_clock
from dpbench.measure.gpu.telemetry import telemetry_of
from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.rank_counts import RankCounts
from dpbench.measure.sample import Window
from dpbench.results.baseline import Figures
from dpbench.results.counts import Phase
from dpbench.results.readings import DeviceTelemetry
from dpbench.stats.order_statistics import interval_of_autocorrelated_median
from dpbench.stats.rounds import Estimate

LEAST_ROUNDS = 20
_BATCHES = 10


class Pedantic(Protocol):
    """What is used of pytest-benchmark's fixture."""

    extra_info: dict[str, Any]
    stats: Any

    def pedantic(
        self, target: Callable[[], Any], *, setup: Callable[[], None], rounds: int, iterations: int
    ) -> Any: ...


def run_rounds(
    benchmark: Pedantic, step: Callable[[], Any], devices: Sequence[torch.device], rounds: int, warmup_rounds: int
) -> tuple[Any, Window]:
    """The last step's result, and what was read beside exactly the rounds.

    pytest-benchmark's own timer stays what the user chose; waiting is part of what it times, and of what precedes it.
    Nothing is calibrated: an optimiser's steps are not free, and ranks have to take equally many.
    """
    now = make_clock(devices)
    window = Window(devices, telemetry_of(devices))
    for _ in range(warmup_rounds):
        step()
    gc.collect()
    gc.freeze()
    try:
        now()
        window.begin()
        result = benchmark.pedantic(lambda: _whole(step, now), setup=lambda: _idle(now), rounds=rounds, iterations=1)
        window.end(rounds)
    finally:
        gc.unfreeze()
    return result, window


def _whole(step: Callable[[], Any], now: Clock) -> Any:
    result = step()
    now()
    return result


def _idle(now: Clock) -> None:
    """pytest-benchmark takes what a setup returns for arguments."""
    now()


def figures_of(samples_s: Sequence[float]) -> Figures:
    """From `LEAST_ROUNDS` or more, in the order in which they were taken.

    The minimum's interval is that of the minima of ten batches in a row: how far it moves within the run.
    """
    low, middle, high = interval_of_autocorrelated_median(np.array(samples_s))
    minima = [float(min(batch)) for batch in np.array_split(np.array(samples_s), _BATCHES)]
    return Figures(Estimate(middle, low, high), Estimate(min(minima), min(minima), max(minima)), len(samples_s))


def window_json(window: Window) -> dict[str, Any]:
    return {
        "telemetry": {
            device: told.model_dump(mode="json") if isinstance(told, DeviceTelemetry) else told
            for device, told in window.telemetry.items()
        },
        "peak_device_bytes": {device: each.model_dump() for device, each in window.peak_device_bytes.items()},
        "peak_reserved_bytes": {device: each.model_dump() for device, each in window.peak_reserved_bytes.items()},
        "peak_rss_bytes": window.peak_rss_bytes,
    }


def counters_of(step: Callable[[], Any]) -> dict[str, int | None]:
    """Of two more steps: operators and FLOPs of the calling thread, Python calls of it and of threads it starts."""
    with RankCounts() as operators:
        operators.enter(Phase.FORWARD)
        step()
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        step()
    counted = operators.by_phase()[Phase.FORWARD]
    return {
        "operators": counted.operators,
        "flops": counted.flops,
        "python_calls": calls.by_phase()[Phase.FORWARD],
    }
