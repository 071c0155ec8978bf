"""The instruments: the clock, NVML's telemetry, and a gate's round."""

import math
from pathlib import Path

import pytest
import torch

from dpbench.engine.launch import launch
from dpbench.gate.rounds import take_round
from dpbench.gate.settings import Benchmark
from dpbench.gate.sides import Sides
from dpbench.measure.clock import make_clock
from dpbench.measure.gpu.nvml_counters import ADVISED_WINDOW_S
from dpbench.measure.gpu.telemetry import telemetry_of
from dpbench.parallel.lanes import use_stream
from dpbench.records.readings import TELEMETRY
from tests.gpu.device import DEVICE, LONG, pause, skip_without_gpu

pytestmark = pytest.mark.gpu
skip_without_gpu()

ROOT = Path(__file__).parents[2]


def test_the_clock_waits_for_a_stream_that_sleeps():
    clock = make_clock([DEVICE])
    with use_stream(DEVICE, torch.cuda.Stream(DEVICE)):
        asleep = pause(LONG)
    assert not asleep.has_come()
    clock()
    assert asleep.has_come()


def test_telemetry_of_a_window_has_readings_or_reasons():
    """They are printed too, to show which readings a GPU and its driver give."""
    telemetry, clock = telemetry_of([DEVICE]), make_clock([DEVICE])
    a = torch.randn(4096, 512, device=DEVICE)
    clock()
    telemetry.begin()
    begin_s, steps = clock(), 0
    while clock() - begin_s < ADVISED_WINDOW_S:
        a @ a.T
        steps += 1
    read = telemetry.end(steps)[str(DEVICE)]
    assert not isinstance(read, str), read
    assert read.window_s > 0
    readings = {name: getattr(read, name) for name in TELEMETRY} | read.throttled_s
    for name, reading in readings.items():
        print(f"{name:32} {reading.reason or reading.value} {reading.source or ''}")  # noqa: T201
        assert reading.value is None or reading.value >= 0, name
        assert reading.value is None or not name.endswith("percent") or reading.value <= 100, name
    assert any(reading.value is not None for reading in readings.values())


def test_a_gates_round_finds_equal_commits_equally_fast():
    """A factor of 1.5 is not a gate's threshold. It only shows that all sides ran the same work."""
    lanes = (str(DEVICE),) * 2
    suite = [
        Benchmark(
            name=name,
            workload="mlp/small",
            batch=64,
            devices="+".join(lanes),
            variant=variant,
            threshold="3%",
        )
        for name, variant in (("sequence", "tuned[dispatch=sequence]"), ("threads", "tuned[dispatch=threads]"))
    ]
    taken = take_round(suite, Sides(ROOT, ROOT, launch), 0, lanes)
    assert set(taken.ratios) == {"sequence", "threads"}
    for name, ratio in taken.ratios.items():
        print(f"{name}: {1e3 * ratio.base_s:.4g} ms, head / base {math.exp(ratio.median.head):.4f}")  # noqa: T201
        assert abs(ratio.median.head) < math.log(1.5)
        assert abs(ratio.twin) < math.log(1.5)
    assert taken.environment is not None
