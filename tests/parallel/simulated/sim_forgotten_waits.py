"""Each wait and each `record_stream` is needed: without it the simulator finds a race."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, lanes, transfer
from dpbench.parallel import broadcast as broadcast_module
from dpbench.parallel import broadcast as link_nodes
from dpbench.parallel import buckets as flat_module
from dpbench.parallel import reduce as flat_sums
from dpbench.parallel import scatter_gather as join
from dpbench.parallel.buckets import StagingBuffer
from dpbench.parallel.replicas import ReplicaPool
from dpbench.parallel.tables import Arrival
from dpbench.simulator import RaceError
from tests.parallel.models import Call, normed
from tests.parallel.simulated.racing import (
    DEVICES,
    PLACES,
    POLICIES,
    SMALL,
    reads_without_output,
    steps,
    train,
    train_sparsely,
)


def test_forgetting_to_wait_for_a_weight_is_a_race(monkeypatch):
    monkeypatch.setattr(Arrival, "wait", lambda self: None)
    with pytest.raises(RaceError):
        steps(DataParallel(nn.Linear(20, 20).to("sim:0"), DEVICES, policy=Policy(**SMALL)))


def test_forgetting_that_the_staging_buffer_is_still_read_is_a_race(monkeypatch):
    monkeypatch.setattr(StagingBuffer, "wait_until_free", lambda self, hub: None)
    base = nn.Sequential(*[nn.LayerNorm(20) for _ in range(6)]).to("sim:0")
    with pytest.raises(RaceError):
        steps(DataParallel(base, DEVICES, policy=Policy(**SMALL)))


def test_forgetting_that_the_weights_are_still_read_is_a_race(monkeypatch):
    monkeypatch.setattr(ReplicaPool, "settle", lambda self: None)
    base = Call(lambda self, x: x, unused=nn.Linear(20, 20)).to("sim:0")
    with pytest.raises(RaceError):
        steps(DataParallel(base, DEVICES, policy=Policy(**SMALL, overlap_copies=False)), is_training=False)


def test_forgetting_that_weights_were_just_written_is_a_race(monkeypatch):
    monkeypatch.setattr(broadcast_module, "wait_stream", lambda waiting, awaited: None)
    with pytest.raises(RaceError):
        steps(DataParallel(nn.Linear(20, 20).to("sim:0"), DEVICES, policy=Policy(**SMALL)))


def test_forgetting_the_streams_that_still_read_a_flat_is_a_race(monkeypatch):
    monkeypatch.setattr(flat_module, "wait_stream", lambda waiting, awaited: None)

    with pytest.raises(RaceError):
        steps(DataParallel(reads_without_output(), DEVICES, policy=Policy(**SMALL)), is_training=False)


def infer_elsewhere(policy):
    """Outputs go to a device without near streams, so that only their own waits order inputs."""
    base = normed().to("sim:0").eval()
    wrapper = DataParallel(base, DEVICES, "sim:1", policy=policy)
    with torch.no_grad():
        for _ in range(6):
            wrapper(torch.randn(16, 5).to("sim:0") * 1)
            torch.zeros(16, 5, device="sim:0")


def share_the_pool_unequally(policy):
    """The last lane lacks the gradient of the bias, so the sums are made one by one.

    Other code may get the side streams too: they are from a pool (c10/cuda/CUDAStream.h). It may allocate on them.
    """

    def forward(self, x):
        return nn.functional.linear(x, self.layer.weight, self.layer.bias if x.device.index < 3 else None)

    share_the_pool_of(Call(forward, layer=nn.Linear(5, 4)), policy)


def share_the_pool_without_the_base(policy):
    """The first lane has no gradients, so the sum is made in memory of another lane's near stream."""
    forward = lambda self, x: self.layer(x) if x.device.index else x[:, :4]  # noqa: E731
    share_the_pool_of(Call(forward, layer=nn.Linear(5, 4)), policy)


def share_the_pool_of(base, policy):
    x = torch.randn(16, 5, requires_grad=True)
    wrapper = DataParallel(base.to("sim:0"), DEVICES, policy=policy)
    for _ in range(3):
        wrapper(x).sum().backward()
        with torch.no_grad():
            for parameter in base.parameters():
                parameter.add_(parameter.grad)
                parameter.grad = None
        users = wrapper._replicas.streams.lanes(len(DEVICES), policy.overlap_reduce)
        for lane in users:
            with torch.sim.stream(lane.near):
                _ = [torch.zeros_like(parameter) for parameter in base.parameters() for _ in range(8)]
                lane.near.wait_stream(users[0].near)  # then memory that only the hub has used is free
                _ = [torch.zeros_like(parameter) for parameter in base.parameters() for _ in range(8)]


def delete_and_allocate(policy):
    """The wrapper is deleted while its weights are read; its side streams then allocate."""
    for _ in range(3):
        wrapper = DataParallel(reads_without_output(), DEVICES, policy=policy)
        with torch.no_grad():
            wrapper(torch.randn(8, 20))
        lanes_but_the_first = wrapper._replicas.streams.lanes(len(DEVICES), policy.overlap_broadcast)[1:]
        del wrapper
        for lane in lanes_but_the_first:
            with torch.sim.stream(lane.far):
                _ = [torch.zeros(count, device=lane.device) for count in (400, 20)]


def allocate_behind_the_backward(policy):
    """Each lane allocates while its packed gradients are still being sent."""
    base = normed().to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy)
    for _ in range(3):
        wrapper(torch.randn(16, 5)).sum().backward()
        for device in DEVICES:
            _ = [torch.zeros(count, device=device) for count in (4, 20, 100) for _ in range(8)]


def train_from(place):
    return lambda policy: train(normed, policy, PLACES[place], lambda: torch.randn(16, 5), steps=6)


HAND_OVERS = {
    "gradients wait": (flat_sums, "wait_event", train_from("first device")),
    "gradients are packed": (flat_sums, "_wait_for", train_from("first device")),
    "packed gradients kept": (flat_sums, "record_stream", allocate_behind_the_backward),
    "some lanes' gradients kept": (flat_sums, "record_for_optimizer", share_the_pool_unequally),
    "other lanes' gradients kept": (flat_sums, "record_for_optimizer", share_the_pool_without_the_base),
    "sparse gradients": (transfer, "wait_stream", train_sparsely),
    "outputs wait": (join, "wait_stream", train_from("first device")),
    "weights kept": (flat_module, "record_stream", delete_and_allocate),
    "inputs wait": (transfer, "wait_stream", infer_elsewhere),
    "inputs kept": (transfer, "record_stream", infer_elsewhere),
}


@pytest.mark.parametrize("name", HAND_OVERS)
def test_each_hand_over_is_needed(name, monkeypatch):
    module, verb, run = HAND_OVERS[name]
    for policy in ("small buckets", "only copies"):
        run(POLICIES[policy])
    monkeypatch.setattr(module, verb, lambda *_: None)
    with pytest.raises(RaceError):
        [run(POLICIES[policy]) for policy in ("small buckets", "only copies")]


def test_forgetting_to_wait_for_the_copy_of_an_output_that_is_the_chunk_is_a_race(monkeypatch):
    """The chunk has the memory of the inbound stream; `record_stream` keeps it for the compute stream only."""
    base = Call(lambda self, x: x, unused=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["default"])
    nears = [lane.near for lane in wrapper._replicas.streams.lanes(len(DEVICES), is_overlapped=True)]
    wrapper(torch.randn(8, 20))
    wait = join.wait_stream
    monkeypatch.setattr(join, "wait_stream", lambda one, other: one in nears and wait(one, other))
    with pytest.raises(RaceError, match="must keep the memory"):
        steps(wrapper, is_training=False)


def layers_on(devices):
    base = nn.Sequential(*[nn.Linear(5, 5) for _ in range(6)]).to("sim:0")
    wrapper = DataParallel(base, devices, policy=POLICIES["small buckets"])
    hub = wrapper._replicas.streams.lanes(len(devices), is_overlapped=True)[0].near
    return lambda: [wrapper(torch.randn(16, 5)).sum().backward() for _ in range(3)], hub


@pytest.mark.parametrize("is_for_hub", [True, False], ids=["the sums", "the next gradients"])
def test_sums_and_the_next_gradients_each_wait_for_the_other(is_for_hub, monkeypatch):
    run, _ = layers_on(DEVICES)
    run()
    if is_for_hub:
        forget_the_wait_for_what_arrives(monkeypatch)
    else:
        monkeypatch.setattr(flat_sums, "_give_back", lambda *_: None)
    with pytest.raises(RaceError):
        run()


def forget_the_wait_for_what_arrives(monkeypatch):
    """Sums wait for the lane's own gradients only."""

    def wait_for(stream, package, lane):
        return stream == lane.compute or lanes.wait_event(stream, package.ready)

    monkeypatch.setattr(flat_sums, "_wait_for", wait_for)
    monkeypatch.setattr(flat_sums, "wait_event", lambda *_: None)


@pytest.mark.parametrize("is_for_hub", [True, False], ids=["the sums", "the next gradients"])
def test_gradients_that_not_all_lanes_have_wait_too(is_for_hub, monkeypatch):
    hub = []

    def run():
        base = Call(lambda self, x: self.layer(x) if x.device.index else x[:, :4], layer=nn.Linear(5, 4)).to("sim:0")
        wrapper = DataParallel(base, DEVICES, policy=POLICIES["one tensor a bucket"])
        hub[:] = [wrapper._replicas.streams.lanes(4, is_overlapped=True)[0].near]
        for _ in range(3):
            wrapper(torch.randn(16, 5, requires_grad=True)).sum().backward()

    run()
    wait = flat_sums.wait_stream
    monkeypatch.setattr(flat_sums, "wait_stream", lambda one, other: (one == hub[0]) is is_for_hub or wait(one, other))
    with pytest.raises(RaceError):
        run()


def test_forgetting_that_the_hub_reads_gradients_of_a_lane_on_its_device_is_a_race(monkeypatch):
    run, hub = layers_on(["sim:0", "sim:1", "sim:0"])
    run()
    record = flat_sums.record_stream
    monkeypatch.setattr(flat_sums, "record_stream", lambda tensor, one: one == hub or record(tensor, one))
    with pytest.raises(RaceError):
        run()


def test_forgetting_the_hub_for_sums_that_are_added_to_gradients_is_a_race(monkeypatch):
    """Without this the sum is freed once it is added to ``.grad``; its memory is that of the compute stream."""
    run, _ = layers_on(DEVICES)
    run()
    monkeypatch.setattr(link_nodes, "_keep_until_the_end", lambda _: None)
    with pytest.raises(RaceError):
        [run() for _ in range(10)]  # with real threads an allocation in time is likely, not sure
