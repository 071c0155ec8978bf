"""Uneven chunks on several devices: values, races, copies."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, gather, scatter
from dpbench.records.recording import Copy
from dpbench.simulator import recording
from tests.parallel.models import normed
from tests.parallel.simulated.racing import DEVICES, PLACES, POLICIES, train
from tests.sampling import sampled

UNEVEN = (1, 3, 2, 2)


@pytest.mark.parametrize(("name", "place"), sampled(product(POLICIES, PLACES), 10))
def test_steps_equal_the_plain_module_on_the_chunks(name, place):
    train(normed, replace(POLICIES[name], shares=UNEVEN), PLACES[place], lambda: torch.randn(19, 5))


@pytest.mark.parametrize("route", ["star", "chain"])
@pytest.mark.parametrize(("shares", "batch"), [((5, 1, 1, 1), 16), ((1, 1, 2, 0), 9), ((1, 2, 3, 4), 3)])
def test_other_routes_and_fewer_lanes(route, shares, batch):
    policy = Policy(shares=shares, route=route, dispatch="sequence", bucket_bytes=200, first_bucket_bytes=64)
    train(
        lambda: nn.Sequential(nn.Linear(20, 9), nn.Linear(9, 3)), policy, PLACES["host"], lambda: torch.randn(batch, 20)
    )


def test_each_device_gets_and_gives_its_part():
    wrapper = DataParallel(nn.Identity().to("sim:0"), DEVICES, policy=Policy(shares=UNEVEN, dispatch="sequence"))
    x = torch.randn(16, 5)
    with recording() as recorded:
        out = wrapper(x)
    copies = [event for event in recorded.events if isinstance(event, Copy)]
    arrived = {event.destination: event.size_bytes for event in copies if event.source is None}
    left = {event.source: event.size_bytes for event in copies if event.destination == 0 and event.source}
    assert arrived == {lane: 20 * size for lane, size in enumerate((2, 6, 4, 4))}
    assert left == {1: 120, 2: 80, 3: 80}
    torch.testing.assert_close(out.cpu(), x)


def test_joined_chunks_of_uneven_sizes_are_differentiable_twice():
    def there_and_back(x):
        chunks = scatter(x.to("sim:0"), DEVICES, policy=Policy(shares=UNEVEN))
        return gather([chunk.square() for chunk in chunks], "sim:0").sin().cpu()

    x = torch.randn(8, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(there_and_back, x)
    assert torch.autograd.gradgradcheck(there_and_back, x)


def test_channels_last_stays_and_non_contiguous_outputs_are_joined():
    x = torch.randn(16, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    policy = Policy(shares=UNEVEN)
    out = gather([chunk * 2 for chunk in scatter(x, DEVICES, policy=policy)], "sim:0")
    assert out.is_contiguous(memory_format=torch.channels_last)
    flipped = gather([chunk.transpose(0, 1) for chunk in scatter(x, DEVICES, policy=policy)], "sim:0", 1)
    torch.testing.assert_close(flipped.cpu(), x.transpose(0, 1))
