"""Times that `results/gpu/figures.md` asks of the next GPU. Each test prints its own."""

import time
from functools import partial
from statistics import median

import pytest
import torch
from torch import nn

from dpbench.parallel.graphs import WARM_UPS
from tests.gpu.device import DEVICE, is_stand_in, skip_without_gpu, synchronize, wrap

skip_without_gpu()
pytestmark = pytest.mark.gpu

ASLEEP = 100_000_000
"""Cycles, 50 ms at 2 GHz: longer than the host takes to issue 500 operators."""
KERNELS, TRIES = 500, 5


def gpu_us(call):
    """Return the GPU's time for a call that is issued while it sleeps: the least of several."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times_ms = []
    for _ in range(TRIES):
        torch.cuda._sleep(ASLEEP)
        begin.record()
        call()
        end.record()
        synchronize()
        times_ms.append(begin.elapsed_time(end))
    return 1000 * min(times_ms)


def timed(times_us, name, part):
    """Add two times to the lists: the host's until the part is issued, and from then until the GPU is idle."""
    begin_s = time.perf_counter()
    result = part()
    issued_s = time.perf_counter()
    synchronize()
    times_us.setdefault(f"{name}, host", []).append(1e6 * (issued_s - begin_s))
    times_us.setdefault(f"{name}, then the GPU", []).append(1e6 * (time.perf_counter() - issued_s))
    return result


def report(times_us):
    for name, time_us in times_us.items():
        print(f"\n{name}: {time_us:.3f} us", end="")  # noqa: T201
    assert min(times_us.values()) > 0


def test_kernels_that_wait_for_each_other_have_an_interval():
    """`add` adds one number. `product` multiplies 32 x 64 and 64 x 64 matrices, as a layer of `mlp/small`."""
    number, weight = torch.zeros(1, device=DEVICE), torch.zeros(64, 64, device=DEVICE)

    def adds():
        for _ in range(KERNELS):
            number.add_(1)

    def products():
        y = torch.zeros(32, 64, device=DEVICE)
        for _ in range(KERNELS):
            y = torch.mm(y, weight)

    times_us = {}
    for name, call in {"add": adds, "product": products}.items():
        times_us[f"{name}, eager"] = gpu_us(call) / KERNELS
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        times_us[f"{name}, in a graph"] = gpu_us(graph.replay) / KERNELS
    report(times_us)


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def test_each_part_of_a_step_on_two_lanes_has_a_time(graphs):
    layers = 4 if is_stand_in() else 64
    base = nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(64, 64), nn.ReLU())]).to(DEVICE)
    module, x, times_us = wrap(base, 2, graphs=graphs), torch.randn(64, 64, device=DEVICE), {}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(WARM_UPS + 20):
        loss = timed(times_us, "forward", lambda: module(x).square().sum())
        timed(times_us, "backward", loss.backward)
        timed(times_us, "optimizer", optimizer.step)
        optimizer.zero_grad()
    report({part: median(times) for part, times in times_us.items()})


def test_the_copy_of_large_weights_to_a_second_lane_has_a_time():
    """0.5 GB of weights, and a forward without gradients on one and on two lanes."""
    width = 64 if is_stand_in() else 4096
    base = nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]).to(DEVICE)
    x, times_us = torch.randn(8, width, device=DEVICE), {}
    for lanes in (1, 2):
        module = wrap(base, lanes)
        for _ in range(20):
            with torch.no_grad():
                timed(times_us, f"forward on {lanes} lanes", partial(module, x))
    report({part: median(times) for part, times in times_us.items()})
