"""Each wait and each `record_stream` of kept sums is needed: without it the simulator finds a race."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel
from dpbench.parallel import accumulate as kept_sums
from dpbench.simulator import RaceError
from tests.parallel.models import Call
from tests.parallel.simulated.racing import DEVICES, POLICIES


@contextmanager
def other_streams():
    """Make another stream current on each device."""
    with ExitStack() as stack:
        for device in reversed(DEVICES):
            stack.enter_context(torch.sim.stream(torch.sim.Stream(device)))
        yield


def layers(route, name="small buckets"):
    base = nn.Sequential(*[nn.Linear(5, 5) for _ in range(3)]).to("sim:0")
    torch.sim.synchronize("sim:0")
    return DataParallel(base, DEVICES, policy=replace(POLICIES[name], route=route))


def step(wrapper, size=8, **options):
    wrapper(torch.randn(size, 5), **options).sum().backward()


def change_streams(route):
    wrapper = layers(route)
    with wrapper.accumulate():
        step(wrapper)
        with other_streams():
            step(wrapper)


def change_streams_and_allocate(route):
    """Sums that another stream adds to are dropped, and the stream that made them allocates."""
    wrapper = layers(route)
    with wrapper.accumulate():
        step(wrapper)
        with other_streams():
            step(wrapper)
            wrapper.zero_grad()
    for device in DEVICES:
        _ = [torch.zeros(count, device=device) for count in (5, 25, 30, 69, 133) for _ in range(8)]


def send_fewer_chunks_at_last(route):
    wrapper = layers(route)
    with wrapper.accumulate():
        step(wrapper)
    step(wrapper, 2)


def train_another_layer_at_last(route, last_size=8):
    """The sums of a layer that the last backward does not reach are added to ``.grad``, which is read."""
    base = Call(lambda self, x, number: self.layers[number](x), layers=nn.ModuleList([nn.Linear(5, 5) for _ in "ab"]))
    base.to("sim:0")
    policy = replace(POLICIES["one tensor a bucket"], route=route)
    wrapper = DataParallel(base, DEVICES, policy=policy)
    for _ in range(3):
        with wrapper.accumulate():
            step(wrapper, number=0)
        step(wrapper, last_size, number=1)
        for parameter in base.parameters():
            parameter.grad.zero_()


def ignore(name):
    return lambda monkeypatch: monkeypatch.setattr(kept_sums, name, lambda *_: None)


FORGOTTEN = {
    "the sum of another stream": (change_streams, ignore("wait_stream")),
    "the memory of another stream's sum": (change_streams_and_allocate, ignore("record_stream")),
    "a sum that the last step does not add to": (send_fewer_chunks_at_last, ignore("record_event")),
    "the sum of a layer that the last step does not use": (train_another_layer_at_last, ignore("wait_stream")),
    "the kept sums of such a layer, of lanes without a last step": (
        lambda route: train_another_layer_at_last(route, last_size=2),
        ignore("record_event"),
    ),
}


@pytest.mark.parametrize("route", ["star", "chain"])
@pytest.mark.parametrize("name", FORGOTTEN)
def test_each_wait_of_an_accumulation_is_needed(name, route, monkeypatch):
    run, forget = FORGOTTEN[name]
    run(route)
    forget(monkeypatch)
    with pytest.raises(RaceError):
        run(route)
