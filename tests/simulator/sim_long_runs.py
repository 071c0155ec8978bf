"""Without a wait of the host, long runs stay as small and as fast as short ones, and races are found as before."""

import gc
import sys
from types import FrameType

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel
from dpbench.simulator import RaceError
from dpbench.simulator.memory.allocator import HELD_LAUNCHES
from dpbench.simulator.simulation import the_simulation

sim = torch.get_device_module("sim")


@pytest.fixture
def base():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).to("sim:0")


@pytest.fixture
def take_step(base):
    wrapper, optimizer, batch = DataParallel(base, [0, 1, 2]), torch.optim.SGD(base.parameters(), 0.1), torch.ones(6, 4)

    def step():
        optimizer.zero_grad()
        wrapper(batch).sum().backward()
        optimizer.step()

    return step


@pytest.fixture
def side():
    return sim.Stream(0)


def byte_codes(function):
    """Return how many byte codes `function` runs on this thread: its CPU time in Python, without noise."""
    count = 0

    def in_frame(_: FrameType, event: str, __: object):
        nonlocal count
        count += event == "opcode"
        return in_frame

    def on_call(frame: FrameType, _: str, __: object):
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return in_frame

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def memory_blocks():
    gc.collect()
    return sys.getallocatedblocks()


def launch(count):
    """Launch `count` operations on another device."""
    other = torch.zeros(1, device="sim:3")
    for _ in range(count):
        other.add_(1)


def test_a_thousand_steps_grow_neither_in_memory_nor_in_time(take_step):
    for _ in range(200):
        take_step()
    time, memory = min(byte_codes(take_step) for _ in range(5)), memory_blocks()
    for _ in range(800):
        take_step()
    growth = memory_blocks() - memory
    assert growth < 800, f"{growth} blocks of memory in 800 steps"
    assert min(byte_codes(take_step) for _ in range(5)) < 1.02 * time


def test_a_race_between_two_late_steps_is_found(base, take_step, side):
    begin = the_simulation().order.launches
    while the_simulation().order.launches < begin + 2 * HELD_LAUNCHES:
        take_step()
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        base[0].weight.sum()
    with pytest.raises(RaceError, match=r"read-write race: aten.add_.* is not ordered after aten.sum"):
        take_step()


@pytest.mark.parametrize("distance", [HELD_LAUNCHES // 2, 2 * HELD_LAUNCHES])
def test_two_accesses_race_at_any_distance(side, distance):
    x = torch.ones(1000, device="sim:0")
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        x.sum()
    launch(distance)
    with pytest.raises(RaceError, match="read-write"):
        x.add_(1)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_freed_block_is_used_again_in_time_if_its_use_was_recorded(side, is_recorded):
    x = torch.ones(1000, device="sim:0")
    y = x * 2
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y.sum()
    address = y.data_ptr()
    if is_recorded:
        y.record_stream(side)
    del y
    launch(HELD_LAUNCHES // 2)
    if is_recorded:
        assert (x * 3).data_ptr() != address
    launch(HELD_LAUNCHES)
    if is_recorded:
        assert (x * 4).data_ptr() == address
    else:
        with pytest.raises(RaceError, match=r"read-write race: .*record_stream"):
            x * 4
