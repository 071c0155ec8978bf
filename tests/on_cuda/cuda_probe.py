"""The probe of links and routes: what it times, with devices or a host that are slow on purpose."""

import time
from itertools import permutations

import pytest
import torch

from dpbench.parallel import DataParallel, Policy, transfer
from dpbench.parallel import links as probe
from dpbench.parallel.policy import Route
from dpbench.parallel.routes import Links, hops_of
from tests.cuda_stand_in import control
from tests.parallel.models import mlp

COUNT = torch.cuda.device_count()
DEVICES = tuple(torch.device("cuda", index) for index in range(COUNT))
ALL_PEERS = Links(tuple(range(COUNT)), frozenset(permutations(range(COUNT), 2)))
LAG_S = 0.5
"""Longer than a round of all copies takes on this machine."""


def measured(*routes):
    return dict(probe.measure.__wrapped__(DEVICES, tuple((route, hops_of(route, ALL_PEERS)) for route in routes)))


def late(function):
    def call(*args, **kwargs):
        time.sleep(LAG_S)
        return function(*args, **kwargs)

    return call


def test_auto_has_times_of_a_chain_a_star_and_nccl():
    links = DataParallel(mlp().to("cuda:0"), DEVICES)._replicas.streams._links
    assert [route for route, seconds in links.seconds if seconds > 0] == ["chain", "star", "nccl"]
    assert dict(links.rates).keys() >= {(0, 1)}


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_the_time_of_nccl_has_the_hosts_part(name, monkeypatch):
    monkeypatch.setattr(torch.cuda.nccl, name, late(getattr(torch.cuda.nccl, name)))
    times_s = measured(Route.STAR, Route.NCCL)
    assert times_s[Route.NCCL] > LAG_S > times_s[Route.STAR]


def test_the_time_of_the_devices_has_no_part_of_a_host_that_is_faster():
    with control.lagging({1: LAG_S}):
        times = probe.times(probe._copies(DEVICES, [(0, 1), (1, 0)]))
        assert times.host_s < LAG_S < times.device_s
    assert times.bucket_s == pytest.approx(times.device_s * probe.BUCKET_BYTES / probe.PIECE_BYTES)


def test_the_rate_of_a_link_is_that_of_its_slower_direction():
    with control.lagging({1: LAG_S}):
        slow = probe.rate_between.__wrapped__(DEVICES[0], DEVICES[1])
    assert slow < probe.PIECE_BYTES / LAG_S < probe.rate_between.__wrapped__(DEVICES[0], DEVICES[2])


def test_a_route_on_which_nccl_fails_is_not_taken(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("NCCL Error 2: unhandled system error")

    monkeypatch.setattr(torch.cuda.nccl, "broadcast", fail)
    assert measured(Route.CHAIN, Route.NCCL).keys() == {Route.CHAIN}


def test_a_short_batch_makes_no_communicator(monkeypatch):
    """A list of devices without one would get it in its first call."""
    called, broadcast = [], transfer.broadcast_by_nccl

    def noted(flats, streams):
        called.append(len(flats))
        broadcast(flats, streams)

    monkeypatch.setattr(transfer, "broadcast_by_nccl", noted)
    wrapper = DataParallel(mlp().to("cuda:0"), DEVICES, policy=Policy(route="nccl", dispatch="sequence"))
    for items in (COUNT, COUNT - 1, COUNT):
        wrapper(torch.randn(items, 5)).sum().backward()
    assert set(called) == {COUNT}
