"""``accumulate()`` on simulated devices: no race, the order of additions, the bytes and the memory."""

import copy
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, routes
from dpbench.records.recording import Copy
from dpbench.simulator import recording
from tests.parallel.models import mlp
from tests.parallel.simulated.racing import DEVICES, POLICIES
from tests.sampling import sampled

ROUTES = ("star", "chain")
TWO_LANES_EACH = ["sim:0", "sim:1", "sim:0", "sim:2", "sim:1"]


@pytest.fixture
def _small_pieces(monkeypatch):
    monkeypatch.setattr(routes, "PIECE_BYTES", 24)


def on(route, name="small buckets", **fields):
    return replace(POLICIES[name], route=route, **fields)


def run(wrapper, batches, is_kept=True):
    """The gradients of a sum of steps: all but the last inside `accumulate` if `is_kept`."""
    wrapper.zero_grad()
    for x in batches[:-1]:
        if is_kept:
            with wrapper.accumulate():
                wrapper(x).square().sum().backward()
            assert all(parameter.grad is None for parameter in wrapper.parameters())
        else:
            wrapper(x).square().sum().backward()
    wrapper(batches[-1]).square().sum().backward()
    return [parameter.grad.cpu() for parameter in wrapper.parameters()]


CASES = [
    pytest.param(route, devices, policy, id=f"{route}, {name}, {policy}")
    for route in ROUTES
    for name, devices in (("four devices", DEVICES), ("two lanes each", TWO_LANES_EACH))
    for policy in ("default", "small buckets", "threads", "no overlap", "only copies", "host staged")
]


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize(("route", "devices", "policy"), sampled(CASES, 4))
def test_an_accumulation_equals_the_sum_of_its_steps_and_has_no_race(route, devices, policy):
    base = mlp().double().to("sim:0")
    wrapper = DataParallel(base, devices, policy=on(route, policy))
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)
    for sizes in ((20, 20, 3), (20, 20, 1), (2, 20, 20)):
        batches = [torch.randn(size, 5, dtype=torch.double) for size in sizes]
        bare = copy.deepcopy(base)
        ours = run(wrapper, batches)
        wanted = run(DataParallel(bare, devices, policy=on(route, policy)), batches, is_kept=False)
        for one, other in zip(ours, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)
        optimizer.step()


@pytest.mark.parametrize("route", ROUTES)
def test_the_order_of_additions_is_the_documented_one(route):
    """Each lane's gradient of each step is a number that loses bits in other orders."""
    small = 2.0**-24
    steps = torch.tensor([[1.0, small, small, small], [small, small, 1.0, small], [small, 1.0, small, small]])
    lanes = [(steps[0, i] + steps[1, i]) + steps[2, i] for i in range(4)]
    a, b, c, d = lanes
    total = ((a + b) + c) + d if route == "star" else a + (b + (c + d))
    base = nn.Linear(1, 1, bias=False).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=Policy(route=route))
    for x in steps[:2]:
        with wrapper.accumulate():
            wrapper(x[:, None]).sum().backward()
    wrapper(steps[2][:, None]).sum().backward()
    assert base.weight.grad.item() == total.item()


def traffic(route, *, is_kept, steps):
    """Bytes of weights, and of gradients, on each link in an accumulation of so many steps."""
    base = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)]).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=on(route, "default"))
    x = torch.randn(4, 16)
    run(wrapper, [x] * 2, is_kept)
    sizes = Counter()
    with recording() as recorded:
        run(wrapper, [x] * steps, is_kept)
    for event in recorded.events:
        is_between_devices = isinstance(event, Copy) and None not in {event.source, event.destination}
        if is_between_devices and event.size_bytes > 4 * 16 * 4:  # less are chunks and outputs
            sizes[event.source, event.destination] += event.size_bytes
    return sizes


@pytest.mark.parametrize("route", ROUTES)
def test_weights_and_gradients_are_sent_once(route):
    once = traffic(route, is_kept=False, steps=1)
    assert traffic(route, is_kept=True, steps=4) == once
    assert traffic(route, is_kept=False, steps=4) == Counter({link: 4 * size for link, size in once.items()})


def test_a_lane_keeps_one_copy_of_the_gradients():
    base = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]).to("sim:0")
    size = sum(p.numel() * p.element_size() for p in base.parameters())
    wrapper = DataParallel(base, DEVICES, policy=on("star", "default"))
    x = torch.randn(4, 64)
    run(wrapper, [x] * 3)
    wrapper.zero_grad()
    before = [torch.sim.memory_allocated(device) for device in DEVICES]
    for _ in range(4):
        with wrapper.accumulate():
            wrapper(x).sum().backward()
        kept = [torch.sim.memory_allocated(device) for device in DEVICES]
        for then, now in zip(before, kept, strict=True):
            assert size <= now - then <= size + 12 * 512
    wrapper.zero_grad()
    assert [torch.sim.memory_allocated(device) for device in DEVICES] == before
