"""Host time to hand 8 replicas to a forward, over that of the stock `replicate`; nothing here fails on a slow machine."""

import importlib
from operator import attrgetter

import pytest
import torch
from torch import nn

from dpbench.measure.clock import make_clock
from dpbench.measure.interleave import interleave, paired_ratio
from dpbench.parallel import DataParallel
from dpbench.parallel.broadcast import Broadcast
from dpbench.parallel.lanes import SideStreams
from dpbench.parallel.policy import DEFAULT_POLICY
from dpbench.parallel.shells import Shells, states_of
from dpbench.parallel.tree import Tree

DEVICES = [torch.device("cpu")] * 8
ROUNDS = 100
stock = importlib.import_module("torch.nn.parallel.replicate")  # the package's attribute of that name is the function


@pytest.fixture
def encoder():
    """24 layers, 242 modules, 288 parameters; so small that copying them costs next to nothing."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 24)


@pytest.fixture
def stock_replicate(monkeypatch, encoder):
    """Every copy is the base's own tensor, and no autograd node leads back: what is left is the work on modules."""

    def no_copies(tensors, devices, detach=False):
        return [list(tensors) for _ in devices]

    monkeypatch.setattr(stock, "_broadcast_coalesced_reshape", no_copies)
    return lambda: stock.replicate(encoder, list(range(len(DEVICES))))


def tuned_replicate(encoder):
    """All of it: whether the tree is still the same, copies of the parameters, autograd's outputs, the shells."""
    wrapper = DataParallel(encoder, DEVICES)
    return lambda: wrapper.replicate(encoder, DEVICES)


def refresh_shells(encoder):
    """The shells alone: emptied, and filled with tensors that have arrived."""
    tree = Tree(encoder)
    lanes = SideStreams(DEVICES).lanes(len(DEVICES), is_overlapped=True)
    deliveries = Broadcast(tree, DEFAULT_POLICY, None).hand_out(lanes, lanes)
    of_lanes = [Shells(tree) for _ in DEVICES]

    def refresh():
        states = states_of(tree)
        for shells, delivery in zip(of_lanes, deliveries, strict=True):
            shells.empty()
            shells.refresh(states, delivery)

    return refresh


def test_replicate(print_row, encoder, stock_replicate):
    steps = {
        "stock replicate, no copies": stock_replicate,
        "tuned replicate": tuned_replicate(encoder),
        "tuned shells alone": refresh_shells(encoder),
    }
    times_s = interleave(steps, make_clock(DEVICES[:1]), ROUNDS, warmup_rounds=10, seed=0)
    reference, *ours = steps
    for name in ours:
        ratio = paired_ratio(times_s[reference], times_s[name])
        print_row(
            f"{name}: 1/{ratio.value:.1f} [1/{ratio.low:.1f}, 1/{ratio.high:.1f}] of {reference};"
            f"  24-layer encoder, {len(DEVICES)} CPU lanes, {ratio.rounds} rounds"
        )
    assert all(map(attrgetter("training"), stock_replicate()))
