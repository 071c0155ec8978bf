"""Host time to make 8 replicas for a forward, over that of the stock `replicate`."""

import importlib

import pytest
import torch
from torch import nn

from benchmarks.pytest_suite.interleave import interleave, paired_ratio
from dpbench.measure.clock import make_clock
from dpbench.parallel import DataParallel
from dpbench.parallel.accumulate import KeptSums, Part
from dpbench.parallel.broadcast import Broadcaster
from dpbench.parallel.lanes import SideStreams
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.policy import DEFAULT_POLICY
from dpbench.parallel.shells import Shells, states_of

DEVICES = [torch.device("cpu")] * 8
ROUNDS = {1: 200, 10: 60}
stock = importlib.import_module("torch.nn.parallel.replicate")  # torch.nn.parallel.replicate is the function


@pytest.fixture
def encoder():
    """24 layers, 242 modules and 288 parameters, so small that copies cost almost nothing."""
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 24)


@pytest.fixture
def stock_replicate(monkeypatch, encoder):
    """Without copies. It works only on modules and on autograd's outputs."""

    def without_copies(tensors, devices, *_, **__):
        outputs = Uncopied.apply(len(devices), *tensors)
        return [outputs[i * len(tensors) : (i + 1) * len(tensors)] for i in range(len(devices))]

    monkeypatch.setattr(stock, "_broadcast_coalesced_reshape", without_copies)
    return lambda: stock.replicate(encoder, list(range(len(DEVICES))))


class Uncopied(torch.autograd.Function):
    """The stock `Broadcast` without copies: one node, an output for each tensor and device."""

    @staticmethod
    def forward(_ctx, count, *tensors):
        return tuple(tensor.detach() for _ in range(count) for tensor in tensors)


def tuned_replicate(encoder):
    """The whole: check the module tree, copy the parameters, make autograd's outputs and fill the shells."""
    wrapper = DataParallel(encoder, DEVICES)

    def replicate():
        wrapper.replicate(encoder, DEVICES)
        wrapper._replicas.sets.empty_idle()  # as at the end of a forward, where the stock replicas are freed too

    return replicate


def refresh_shells(encoder):
    """Only the work on shells: fill them with tensors that have arrived, and empty them."""
    tree = ModuleTree(encoder)
    lanes = SideStreams(DEVICES).lanes(len(DEVICES), is_overlapped=True)
    deliveries = Broadcaster(tree, DEFAULT_POLICY).broadcast(lanes, lanes, Part(KeptSums()), None)
    of_lanes = [Shells(tree) for _ in DEVICES]

    def refresh():
        states, compilations = states_of(tree)
        for shells, delivery in zip(of_lanes, deliveries, strict=True):
            shells.refresh(states, delivery, compilations)
            shells.empty()

    return refresh


def broadcast_tensors(encoder):
    """Only the work on tensors: copies, a new tensor for each parameter, autograd's node."""
    broadcast = Broadcaster(ModuleTree(encoder), DEFAULT_POLICY)
    lanes = SideStreams(DEVICES).lanes(len(DEVICES), is_overlapped=True)
    return lambda: broadcast.broadcast(lanes, lanes, Part(KeptSums()), None)


def in_a_row(step, calls):
    def steps():
        for _ in range(calls):
            step()

    return steps


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("calls", sorted(ROUNDS, reverse=True))
def test_replicate(print_row, share, encoder, stock_replicate, calls):
    """Of 10 successive calls, all but the first find their memory in the CPU's caches.

    A single call does not, because another of the interleaved steps ran before it.
    """
    steps = {
        "stock": stock_replicate,
        "tuned": tuned_replicate(encoder),
        "its shells alone": refresh_shells(encoder),
        "its tensors alone": broadcast_tensors(encoder),
    }
    times_s = interleave(
        {name: in_a_row(step, calls) for name, step in steps.items()},
        make_clock(DEVICES[:1]),
        share(ROUNDS[calls]),
        warmup_rounds=5,
        seed=0,
    )
    for name in list(steps)[1:]:
        ratio = paired_ratio(times_s["stock"], times_s[name])
        print_row(
            f"replicate, {name}: 1/{ratio.value:.1f} [1/{ratio.low:.1f}, 1/{ratio.high:.1f}] of stock's without copies"
            f"  24-layer encoder, {len(DEVICES)} CPU lanes, 1 intra-op thread, {calls} in a row, {ratio.rounds} rounds"
        )
    assert len(stock_replicate()) == len(DEVICES)
