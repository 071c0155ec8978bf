"""Each wait and each `record_stream` is needed: without it the simulator finds a race."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.parallel import (
    DataParallel,
    Policy,
    accumulate,
    broadcast,
    buckets,
    gradient_nodes,
    lanes,
    reduce,
    routes,
    scatter_gather,
    transfer,
)
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
    layers,
    reads_without_output,
    steps,
    train,
    train_sparsely,
)
from tests.sampling import sampled

TWO_LANES_EACH = ["sim:0", "sim:1", "sim:1", "sim:2", "sim:2", "sim:3"]
CHAIN = replace(POLICIES["small buckets"], route="chain")


# What is forgotten: each of these returns a function that takes `monkeypatch`.


def ignore(owner, name):
    return lambda m: m.setattr(owner, name, lambda *_: None)


def ignore_on(owner, verb, is_ignored):
    """Ignore calls whose stream `is_ignored`, which gets it and the lists of lanes that were made."""

    def forget(monkeypatch):
        real, new_lanes, made = getattr(owner, verb), lanes.SideStreams._new_lanes, []

        def note(self, *args):
            made.append(new_lanes(self, *args))
            return made[-1]

        def call(*args):
            stream = args[0] if verb.startswith("wait") else args[1]
            return None if is_ignored(stream, made) else real(*args)

        monkeypatch.setattr(lanes.SideStreams, "_new_lanes", note)
        monkeypatch.setattr(owner, verb, call)

    return forget


def above(stream, made):
    return any(stream == lane.above for of_forward in made for lane in of_forward if lane.parent != 0)


def far(stream, made):
    return any(stream == lane.far for of_forward in made for lane in of_forward[1:])


def near(stream, made):
    return any(stream == lane.near for of_forward in made for lane in of_forward)


def hub(stream, made):
    return any(stream == of_forward[0].near for of_forward in made)


def but(kind):
    return lambda stream, made: not kind(stream, made)


def ignore_arrivals(is_ignored=lambda stream, made: True):
    """Sums wait for the lane's own gradients only."""

    def wait_for(stream, package, lane):
        return stream == lane.compute or lanes.wait_event(stream, package.ready)

    def forget(monkeypatch):
        monkeypatch.setattr(reduce, "_wait_for", wait_for)
        ignore_on(reduce, "wait_event", is_ignored)(monkeypatch)

    return forget


def ignore_beside(monkeypatch):
    """Let no sum wait for lanes on their parent's device."""
    real = reduce._wait_for

    def wait_for(stream, package, lane):
        return real(stream, package, lane) if lane.is_linked or lane.parent == 0 else None

    monkeypatch.setattr(reduce, "_wait_for", wait_for)


def keep_none_beside(monkeypatch):
    """Let the memory of lanes on their parent's device be free before the parent has read it."""
    real = reduce._give_back

    def give_back(children, lane):
        real([(child, package) for child, package in children if child.is_linked or child.parent == 0], lane)

    monkeypatch.setattr(reduce, "_give_back", give_back)


# The runs, which are races without the wait.


def read_weights():
    steps(DataParallel(nn.Linear(20, 20).to("sim:0"), DEVICES, policy=Policy(**SMALL)))


def pack_many_buckets():
    base = nn.Sequential(*[nn.LayerNorm(20) for _ in range(6)]).to("sim:0")
    steps(DataParallel(base, DEVICES, policy=Policy(**SMALL)))


def read_nothing(policy):
    base = Call(lambda self, x: x * 1, unused=nn.Linear(20, 20)).to("sim:0")
    steps(DataParallel(base, DEVICES, policy=policy), is_training=False)


def read_without_output():
    steps(DataParallel(reads_without_output(), DEVICES, policy=Policy(**SMALL)), is_training=False)


def return_chunks():
    """A chunk has the memory of the inbound stream; `record_stream` keeps it for the compute stream only."""
    base = Call(lambda self, x: x, unused=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["default"])
    steps(wrapper, is_training=False)


def infer_elsewhere(policy):
    """Outputs go to a device without near streams, so that only their own waits order inputs."""
    wrapper = DataParallel(normed().to("sim:0").eval(), DEVICES, "sim:1", policy=policy)
    with torch.no_grad():
        for _ in range(6):
            wrapper(torch.randn(16, 5).to("sim:0") * 1)
            torch.zeros(16, 5, device="sim:0")


def share_the_pool(policy, forward):
    """Other code gets the side streams too, as they are from a pool (c10/cuda/CUDAStream.h), and allocates on them."""
    base, x = Call(forward, layer=nn.Linear(5, 4)), torch.randn(16, 5, requires_grad=True)
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


def without_last_bias(self, x):
    """The last lane lacks the gradient of the bias, so the sums are made one by one."""
    return nn.functional.linear(x, self.layer.weight, self.layer.bias if x.device.index < 3 else None)


def without_the_base(self, x):
    """The first lane has no gradients, so the sum is made in memory of another lane's near stream."""
    return self.layer(x) if x.device.index else x[:, :4]


def delete_and_allocate(policy, base=reads_without_output, is_read=True):
    """The wrapper is deleted while its weights are read or passed on; its far streams then allocate."""
    for _ in range(3):
        wrapper = DataParallel(base(), DEVICES, policy=policy)
        with torch.no_grad():
            wrapper(torch.randn(8, 20))
        behind_the_first = wrapper._replicas.streams.lanes(len(DEVICES), policy.overlap_broadcast)[1:]
        del wrapper
        for lane in behind_the_first:
            if not is_read:
                lane.compute.synchronize()  # the allocator sees that this stream needs the memory no more
            with torch.sim.stream(lane.far):
                _ = [torch.zeros(count, device=lane.device) for count in (400, 20)]


def pass_on_unread(policy):
    delete_and_allocate(
        policy, lambda: Call(lambda self, x: x * 1, unused=nn.Linear(20, 20)).to("sim:0"), is_read=False
    )


def allocate_behind_the_backward(policy, devices=DEVICES):
    """Each lane allocates while its packed gradients are added to and sent."""
    wrapper = DataParallel(normed().to("sim:0"), devices, policy=policy)
    for _ in range(3):
        wrapper(torch.randn(24, 5)).sum().backward()
        for device in dict.fromkeys(devices):
            _ = [torch.zeros(count, device=device) for count in (4, 20, 100) for _ in range(8)]


def train_normed(policy):
    train(normed, policy, PLACES["first device"], lambda: torch.randn(16, 5), steps=6)


def train_layers(policy=POLICIES["small buckets"], devices=DEVICES, count=3):
    wrapper = DataParallel(layers(6), devices, policy=policy)
    for _ in range(count):
        wrapper(torch.randn(24, 5)).sum().backward()


def train_without_the_base():
    base = Call(without_the_base, layer=nn.Linear(5, 4)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["one tensor a bucket"])
    for _ in range(3):
        wrapper(torch.randn(16, 5, requires_grad=True)).sum().backward()


def skip_what_is_unchanged(policy):
    """Lane 1 gets the weights in one forward and passes them on in the next."""
    wrapper = DataParallel(nn.Linear(20, 20).to("sim:0"), DEVICES, policy=replace(policy, skip_unchanged=True))
    with torch.no_grad():
        for batch in (1, 2, 8):
            wrapper(torch.randn(batch, 20))


def pack_the_first_lane_first(policy):
    """Of two lanes on a device the engine runs the first one's backward first."""
    calls = []

    def forward(self, x):
        out = self.layer(x)
        calls.append(out)
        if len(calls) % len(TWO_LANES_EACH) in {3, 5}:  # the second lanes of two devices
            out.grad_fn._set_sequence_nr(0)
        return out

    wrapper = DataParallel(Call(forward, layer=nn.Linear(5, 5)).to("sim:0"), TWO_LANES_EACH, policy=policy)
    for _ in range(2):
        wrapper(torch.randn(24, 5)).sum().backward()


def accumulate_on_two_streams(policy, is_dropped=False):
    """Another stream adds to the sums. If they are dropped then, the stream that made them allocates."""
    wrapper = DataParallel(layers(3), DEVICES, policy=policy)
    with wrapper.accumulate():
        wrapper(torch.randn(8, 5)).sum().backward()
        with ExitStack() as streams:
            for device in reversed(DEVICES):
                streams.enter_context(torch.sim.stream(torch.sim.Stream(device)))
            wrapper(torch.randn(8, 5)).sum().backward()
            if is_dropped:
                wrapper.zero_grad()
    if is_dropped:
        for device in DEVICES:
            _ = [torch.zeros(count, device=device) for count in (5, 25, 30, 69, 133) for _ in range(8)]


def accumulate_and_send_fewer_chunks(policy):
    wrapper = DataParallel(layers(3), DEVICES, policy=policy)
    with wrapper.accumulate():
        wrapper(torch.randn(8, 5)).sum().backward()
    wrapper(torch.randn(2, 5)).sum().backward()


def accumulate_another_layer(policy, last_size=8):
    """The sums of a layer that the last backward does not reach are added to ``.grad``, which is read."""
    base = Call(lambda self, x, number: self.layers[number](x), layers=nn.ModuleList([nn.Linear(5, 5) for _ in "ab"]))
    wrapper = DataParallel(base.to("sim:0"), DEVICES, policy=replace(policy, coalesce=False))
    for _ in range(3):
        with wrapper.accumulate():
            wrapper(torch.randn(8, 5), number=0).sum().backward()
        wrapper(torch.randn(last_size, 5), number=1).sum().backward()
        for parameter in base.parameters():
            parameter.grad.zero_()


def either(run, *arguments):
    """Some waits are for buckets, and some for copies that nothing else orders."""
    return lambda: [run(POLICIES[policy], *arguments) for policy in ("small buckets", "only copies")]


FORGOTTEN = {
    "a weight has arrived": (read_weights, ignore(Arrival, "wait")),
    "the staging buffer was read": (pack_many_buckets, ignore(StagingBuffer, "wait_until_free")),
    "the weights were read": (
        lambda: read_nothing(Policy(**SMALL, overlap_copies=False)),
        ignore(ReplicaPool, "settle"),
    ),
    "weights were written": (read_weights, ignore(broadcast, "wait_stream")),
    "a flat was read": (read_without_output, ignore(buckets, "wait_stream")),
    "an output that is the chunk was copied": (return_chunks, ignore_on(scatter_gather, "wait_stream", but(near))),
    "gradients wait": (either(train_normed), ignore(reduce, "wait_event")),
    "gradients are packed": (either(train_normed), ignore(reduce, "_wait_for")),
    "packed gradients kept": (either(allocate_behind_the_backward), ignore(reduce, "record_stream")),
    "some lanes' gradients kept": (either(share_the_pool, without_last_bias), ignore(reduce, "record_for_optimizer")),
    "other lanes' gradients kept": (either(share_the_pool, without_the_base), ignore(reduce, "record_for_optimizer")),
    "sparse gradients": (either(train_sparsely), ignore(transfer, "wait_stream")),
    "outputs wait": (either(train_normed), ignore(scatter_gather, "fork")),
    "outputs have arrived": (either(train_normed), ignore(scatter_gather, "wait_stream")),
    "weights kept": (either(delete_and_allocate), ignore(buckets, "record_stream")),
    "inputs wait": (either(infer_elsewhere), ignore(transfer, "fork")),
    "inputs have arrived": (either(infer_elsewhere), ignore(transfer, "wait_stream")),
    "inputs kept": (either(infer_elsewhere), ignore(transfer, "record_stream")),
    "the sums wait for gradients": (train_layers, ignore_arrivals()),
    "the next gradients wait for the sums": (train_layers, ignore(reduce, "_give_back")),
    "the sums of some lanes wait": (train_without_the_base, ignore_on(reduce, "wait_stream", hub)),
    "the next gradients of some lanes wait": (train_without_the_base, ignore_on(reduce, "wait_stream", but(hub))),
    "gradients of a lane on the hub's device kept": (
        lambda: train_layers(devices=["sim:0", "sim:1", "sim:0"]),
        ignore_on(reduce, "record_stream", hub),
    ),
    "sums that are added to gradients kept": (  # an allocation in time is likely, not sure
        lambda: train_layers(count=30),
        ignore(gradient_nodes, "_keep_until_the_end"),
    ),
}
FORGOTTEN_ON_A_CHAIN = {
    "a parent's copy has arrived": (train_layers, ignore_on(buckets, "wait_event", above)),
    "an unchanged copy has arrived": (skip_what_is_unchanged, ignore_on(buckets, "wait_event", above)),
    "a copy was passed on before the next": (read_nothing, ignore_on(buckets, "wait_event", far)),
    "a copy was passed on before a forward writes": (
        train_normed,
        lambda m: m.setattr(buckets, "Arrival", lambda device, events: Arrival(device, events[:1])),
    ),
    "a copy is kept": (pass_on_unread, ignore_on(buckets, "record_stream", above)),
    "gradients are packed": (train_layers, ignore(reduce, "_wait_for")),
    "gradients have arrived at a lane": (train_layers, ignore_arrivals(far)),
    "received gradients were added": (train_layers, ignore(reduce, "_give_back")),
    "packed gradients are kept": (allocate_behind_the_backward, ignore_on(reduce, "record_stream", far)),
    "gradients of a lane beside are kept": (
        lambda policy: allocate_behind_the_backward(policy, TWO_LANES_EACH),
        keep_none_beside,
    ),
    "gradients of a lane beside are packed": (pack_the_first_lane_first, ignore_beside),
}
FORGOTTEN_IN_AN_ACCUMULATION = {
    "the sum of another stream": (accumulate_on_two_streams, ignore(accumulate, "wait_stream")),
    "the memory of another stream's sum": (
        lambda policy: accumulate_on_two_streams(policy, is_dropped=True),
        ignore(accumulate, "record_stream"),
    ),
    "a sum that the last step does not add to": (accumulate_and_send_fewer_chunks, ignore(accumulate, "record_event")),
    "the sum of a layer that the last step does not use": (accumulate_another_layer, ignore(accumulate, "wait_stream")),
    "such a sum of lanes without a last step": (
        lambda policy: accumulate_another_layer(policy, last_size=2),
        ignore(accumulate, "record_event"),
    ),
}


def assert_is_needed(run, forget, monkeypatch):
    run()
    forget(monkeypatch)
    with pytest.raises(RaceError):
        run()


@pytest.mark.parametrize("name", FORGOTTEN)
def test_each_wait_is_needed(name, monkeypatch):
    assert_is_needed(*FORGOTTEN[name], monkeypatch)


@pytest.mark.parametrize("piece_bytes", [routes.PIECE_BYTES, 24], ids=["whole buckets", "pieces"])
@pytest.mark.parametrize("name", sampled(FORGOTTEN_ON_A_CHAIN, 8))
def test_each_wait_of_a_chain_is_needed(name, piece_bytes, monkeypatch):
    monkeypatch.setattr(routes, "PIECE_BYTES", piece_bytes)
    run, forget = FORGOTTEN_ON_A_CHAIN[name]
    assert_is_needed(lambda: run(CHAIN), forget, monkeypatch)


@pytest.mark.parametrize("route", ["star", "chain"])
@pytest.mark.parametrize("name", FORGOTTEN_IN_AN_ACCUMULATION)
def test_each_wait_of_an_accumulation_is_needed(name, route, monkeypatch):
    run, forget = FORGOTTEN_IN_AN_ACCUMULATION[name]
    assert_is_needed(lambda: run(replace(CHAIN, route=route)), forget, monkeypatch)
