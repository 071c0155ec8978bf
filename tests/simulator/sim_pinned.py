"""Pinned host memory: copies with it need no wait of the host, and their races are found."""

import gc

import pytest
import torch

from dpbench.results.recording import Copy, HostWait
from dpbench.simulator import RaceError, recording
from dpbench.simulator.simulation import the_simulation

sim = torch.get_device_module("sim")


@pytest.fixture
def pinned():
    return torch.zeros(8).pin_memory()


def waits_of_a_copy_to(host):
    x = torch.arange(8.0, device="sim:0")
    with recording() as recorded:
        host.copy_(x, non_blocking=True)
    assert [event.destination for event in recorded.events if isinstance(event, Copy)] == [None]
    return [event for event in recorded.events if isinstance(event, HostWait)]


def test_only_a_copy_to_pinned_memory_needs_no_wait(pinned):
    assert not waits_of_a_copy_to(pinned)
    assert waits_of_a_copy_to(torch.zeros(8))
    torch.testing.assert_close(pinned, torch.arange(8.0))


def test_a_blocking_copy_to_pinned_memory_makes_the_host_wait(pinned):
    x = torch.arange(8.0, device="sim:0")
    with recording() as recorded:
        pinned.copy_(x)
    assert any(isinstance(event, HostWait) for event in recorded.events)


def through(host, is_awaited, part=slice(None)):
    """Copy from one device to another through the host."""
    x, y = torch.ones(8, device="sim:0"), torch.zeros(8, device="sim:1")
    out, into = sim.Stream("sim:0"), sim.Stream("sim:1")
    out.wait_stream(sim.current_stream("sim:0"))
    into.wait_stream(sim.current_stream("sim:1"))
    with sim.stream(out):
        host[:4].copy_(x[:4], non_blocking=True)
    if is_awaited:
        into.wait_stream(out)
    with sim.stream(into):
        y[part].copy_(host[part], non_blocking=True)
    return out


def test_a_read_must_wait_for_the_write(pinned):
    through(pinned, is_awaited=True)
    for device in ("sim:0", "sim:1"):
        sim.synchronize(device)
    with pytest.raises(RaceError, match="write-read race"):
        through(pinned, is_awaited=False)


def test_other_bytes_need_no_wait(pinned):
    through(pinned, is_awaited=False, part=slice(4, 8))


def test_memory_is_not_written_while_it_is_read(pinned):
    out = through(pinned, is_awaited=True)
    with sim.stream(out), pytest.raises(RaceError, match="read-write race"):
        pinned.copy_(torch.ones(8, device="sim:0"), non_blocking=True)


def test_views_are_pinned_and_memory_that_died_is_forgotten():
    gc.collect()
    before = len(the_simulation().pinned._by_raw)
    view = torch.zeros(8).pin_memory()[2:6]
    gc.collect()
    assert not waits_of_a_copy_to(view.new_empty(0).set_(view.untyped_storage(), 0, (8,)))
    assert len(the_simulation().pinned._by_raw) == before + 1
    del view
    gc.collect()
    assert len(the_simulation().pinned._by_raw) == before
