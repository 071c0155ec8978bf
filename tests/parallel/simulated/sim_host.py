"""What the host does for a step on several devices: exact numbers of calls, and how they grow."""

from collections import Counter

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.dispatch import TRIES
from dpbench.records.recording import HostCall, HostCallName
from dpbench.simulator import recording
from tests.parallel.models import Call, mlp

DEVICES = [f"sim:{i}" for i in range(4)]


def host_calls(layers, lanes, bucket_bytes=1 << 30, step=lambda wrapper: wrapper(torch.randn(16, 8)).sum().backward()):
    """The calls of the third training step of a model of equal layers, by name."""
    base = nn.Sequential(*[nn.Linear(8, 8) for _ in range(layers)]).to("sim:0")
    policy = Policy(dispatch="sequence", bucket_bytes=bucket_bytes, first_bucket_bytes=bucket_bytes)
    wrapper = DataParallel(base, DEVICES[:lanes], policy=policy)
    for _ in range(3):
        base.zero_grad()
        with recording() as recorded:
            step(wrapper)
    return Counter(event.name for event in recorded.events if isinstance(event, HostCall))


@pytest.mark.parametrize("lanes", [2, 4])
def test_no_call_is_made_for_each_parameter(lanes):
    assert host_calls(4, lanes) == host_calls(40, lanes)


def test_reads_of_weights_under_way_look_up_the_streams_number_and_nothing_else():
    """With several buckets each read asks whether its bucket has arrived."""
    few, many = (host_calls(layers, 4, bucket_bytes=layers * 144) for layers in (8, 32))  # two buckets each
    grown = {name for name in HostCallName if many[name] != few[name]}
    assert grown == {HostCallName.HANDLE_LOOKUP}


def test_calls_grow_with_buckets_and_lanes_only():
    """Twice the buckets are at most twice the calls, but for those of batch and outputs."""
    few, many = (host_calls(32, 4, bucket_bytes=32 // buckets * 288) for buckets in (4, 8))
    for name in set(few) - {HostCallName.HANDLE_LOOKUP}:
        assert many[name] <= 2 * few[name], name


def test_a_training_step_never_blocks_the_host():
    assert host_calls(4, 4)[HostCallName.HOST_WAIT] == 0
    assert host_calls(4, 4, step=lambda wrapper: wrapper(torch.randn(16, 8)).sum().item())[HostCallName.HOST_WAIT] == 1


def test_auto_waits_for_the_devices_in_its_trials_only():
    wrapper = DataParallel(mlp().to("sim:0"), DEVICES)
    waits = []
    trials = 2 * TRIES  # in sequence, on threads
    for _ in range(trials + 3):
        with recording() as recorded, torch.no_grad():
            wrapper(torch.randn(16, 5))
        calls = Counter(event.name for event in recorded.events if isinstance(event, HostCall))
        waits.append(calls[HostCallName.HOST_WAIT])
    assert waits == [2 * len(DEVICES)] * trials + [0] * 3


def test_weights_start_at_multiples_of_256_bytes():
    seen = []

    def forward(self, x):
        seen.append([torch.sim.data_ptr(parameter) % 256 for parameter in self.parameters()])
        return self.inner(x)

    inner = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 7), nn.Linear(7, 1))
    DataParallel(Call(forward, inner=inner).to("sim:0"), DEVICES)(torch.randn(16, 5))
    assert seen == [[0] * 6] * len(DEVICES)


def test_a_graph_capture_is_refused_in_one_clear_line(monkeypatch):
    wrapper = DataParallel(mlp().to("sim:0"), DEVICES)
    monkeypatch.setattr(torch.sim, "is_current_stream_capturing", lambda: True, raising=False)
    with pytest.raises(RuntimeError, match="a graph capture is not supported"):
        wrapper(torch.randn(16, 5))
