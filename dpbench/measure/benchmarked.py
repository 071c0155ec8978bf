"""Time a user's step with pytest-benchmark."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import torch

from dpbench.judge.estimate import Estimate
from dpbench.judge.intervals import interval_of_autocorrelated_median
from dpbench.measure.clock import Clock, make_clock
from dpbench.measure.gpu.telemetry import telemetry_of
from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.ranks.rank_counts import RankCounts
from dpbench.measure.sample import Window, settle
from dpbench.records.baseline import Figures
from dpbench.records.count_record import Phase
from dpbench.records.readings import DeviceTelemetry

LEAST_ROUNDS = 20
_BATCHES = 10


class Pedantic(Protocol):
    extra_info: dict[str, Any]
    stats: Any

    def pedantic(
        self, target: Callable[[], Any], *, setup: Callable[[], None], rounds: int, iterations: int
    ) -> Any: ...


def run_rounds(
    benchmark: Pedantic,
    step: Callable[[], Any],
    devices: Sequence[torch.device],
    *,
    rounds: int,
    warmup_rounds: int,
    trials_left: Callable[[], int | None],
) -> tuple[Any, Window]:
    """Run the rounds, one step each, after `warmup_rounds` and when there are no `trials_left`.

    Return the last step's result and the window of readings. The number of rounds is fixed: extra optimizer steps
    would change the model, and all ranks must take the same number.
    """
    now = make_clock(devices)
    window = Window(devices, telemetry_of(devices))
    for _ in range(warmup_rounds):
        step()
    if trials_left() != 0:
        settle(step, trials_left)
    gc.collect()
    gc.freeze()
    try:
        now()
        window.begin()
        result = benchmark.pedantic(
            lambda: _step_and_wait(step, now), setup=lambda: _wait(now), rounds=rounds, iterations=1
        )
        window.end(rounds)
    finally:
        gc.unfreeze()
    return result, window


def _step_and_wait(step: Callable[[], Any], now: Clock) -> Any:
    result = step()
    now()
    return result


def _wait(now: Clock) -> None:
    """pytest-benchmark passes a setup's result to the step, so this returns None."""
    now()


def figures_of(samples_s: Sequence[float]) -> Figures:
    """Median and minimum with intervals; the minimum's is the range of the minima of ten consecutive batches."""
    low, middle, high = interval_of_autocorrelated_median(np.array(samples_s))
    minima = [float(min(batch)) for batch in np.array_split(np.array(samples_s), _BATCHES)]
    return Figures(Estimate(middle, low, high), Estimate(min(minima), min(minima), max(minima)), len(samples_s))


def window_json(window: Window) -> dict[str, Any]:
    return {
        "telemetry": {
            device: asdict(telemetry) if isinstance(telemetry, DeviceTelemetry) else telemetry
            for device, telemetry in window.telemetry.items()
        },
        "peak_device_bytes": {device: asdict(reading) for device, reading in window.peak_device_bytes.items()},
        "peak_reserved_bytes": {device: asdict(reading) for device, reading in window.peak_reserved_bytes.items()},
        "peak_rss_bytes": window.peak_rss_bytes,
    }


def counters_of(step: Callable[[], Any]) -> dict[str, int | None]:
    """Two more steps' operators and FLOPs of the calling thread, and Python calls, also of threads that it starts."""
    with RankCounts() as operators:
        operators.enter(Phase.FORWARD)
        step()
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        step()
    counted = operators.by_phase()[Phase.FORWARD]
    return {"operators": counted.operators, "flops": counted.flops, "python_calls": calls.by_phase()[Phase.FORWARD]}
