"""Copies on devices that may have fewer peers than there are devices."""

import warnings

import pytest
import torch

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel import links as links_module
from dpbench.parallel.routes import parents_of
from tests.cuda_stand_in import control
from tests.parallel.models import normed
from tests.parallel.oracle import assert_same_step

COUNT = torch.cuda.device_count()
control.limit_peers(2)  # torch asks once, and keeps the answer: so this file has a process of its own


def steps(*routes):
    for route in routes:
        step(route)


def step(route):
    x = torch.randn(16, 5, dtype=torch.float64, device="cuda:0")
    policy = Policy(route=route)
    assert_same_step(
        lambda: normed().double().to("cuda:0"),
        lambda base: DataParallel(base, list(range(COUNT)), policy=policy),
        x,
        lanes=COUNT,
    )


@pytest.mark.parametrize("route", ["chain", "auto"])
def test_a_chain_asks_for_the_links_that_it_uses_and_is_made_without_a_warning(route, monkeypatch):
    monkeypatch.setattr(links_module, "MOST_PEERS", 2)
    monkeypatch.setattr(links_module, "rate_between", lambda *_: 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapper = DataParallel(normed().to("cuda:0"), list(range(COUNT)), policy=Policy(route=route))
    links = wrapper._replicas.streams._links
    assert parents_of("chain", links) == (0, *range(COUNT - 1))
    assert not links.corrupt
    assert "star" not in dict(links.seconds)


def test_a_link_for_which_no_peer_is_left_goes_through_the_host_with_one_warning():
    with pytest.warns(RuntimeWarning, match="8 peers at most") as raised:
        steps("star", "chain")
    assert sum("8 peers" in str(warning.message) for warning in raised) == 1
    copies = control.copies()
    assert {"cuda:0->cuda:1", "cuda:1->cuda:2", "cuda:0->host", "host->cuda:2"} <= set(copies)
    assert "cuda:0->cuda:2" not in copies  # device 2 has its two neighbours on the chain as peers
