"""No two operations touch the same bytes unordered, whoever waits for whom; and a forgotten wait would be found.

The simulator raises RaceError for bytes that are read or written in no order, so that a step that runs is one
without a race.
"""

import copy
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, handout, join, lanes, parallel_apply, transfer
from dpbench.parallel import broadcast as broadcast_module
from dpbench.parallel import flat as flat_module
from dpbench.parallel.arrival import Arrival
from dpbench.parallel.flat import Stage
from dpbench.parallel.replicas import ReplicaPool
from dpbench.simulator import RaceError
from tests.parallel.models import Call, Tied, normed
from tests.parallel.oracle import Chunked

DEVICES = [f"sim:{i}" for i in range(4)]
SMALL = {"bucket_bytes": 200, "first_bucket_bytes": 64, "dispatch": "sequence"}

POLICIES = {
    "default": Policy(dispatch="sequence"),
    "threads": Policy(dispatch="threads"),
    "small buckets": Policy(**SMALL),
    "small buckets, threads": Policy(**{**SMALL, "dispatch": "threads"}),
    "one tensor a bucket": Policy(coalesce=False, dispatch="sequence"),
    "no overlap": Policy(overlap_broadcast=False, overlap_reduce=False, overlap_copies=False),
    "only broadcast": Policy(**SMALL, overlap_reduce=False, overlap_copies=False),
    "only reduce": Policy(**SMALL, overlap_broadcast=False, overlap_copies=False),
    "only copies": Policy(**SMALL, overlap_broadcast=False, overlap_reduce=False),
    "skip unchanged": Policy(**SMALL, skip_unchanged=True),
    "nothing cached": Policy(**SMALL, cache_replicas=False),
    "host staged": Policy(**SMALL, host_staged=True),
}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.inner(x).flatten(1))


MODELS = {
    "batch norm": (normed, lambda: torch.randn(16, 5)),
    "attention": (Attention, lambda: torch.randn(8, 3, 8)),
    "tied": (Tied, lambda: torch.randint(11, (8, 3))),
}


def train(make, policy, place, make_input, *, steps=2, devices=DEVICES):
    """Steps of both; each gradient and output equal. The learning rate makes each step's weights new."""
    torch.manual_seed(1)
    base = make()
    expected = Chunked(copy.deepcopy(base), len(devices))
    base.to(devices[0])
    if isinstance(base, Tied):  # a simulated parameter is a new one on each module that has it
        base.head.weight = base.embedding.weight
    wrapper = DataParallel(base, devices, policy=policy)
    ours = torch.optim.SGD(base.parameters(), lr=0.01)
    theirs = torch.optim.SGD(expected.base.parameters(), lr=0.01)
    for _ in range(steps):
        x = make_input()
        ours.zero_grad()
        theirs.zero_grad()
        got, want = wrapper(place(x)), expected(x)
        torch.testing.assert_close(got.cpu(), want, atol=1e-5, rtol=1e-4)
        got.square().sum().backward()
        want.square().sum().backward()
        for (name, parameter), other in zip(base.named_parameters(), expected.base.parameters(), strict=True):
            other.grad = expected.grads()[name]
            torch.testing.assert_close(parameter.grad.cpu(), other.grad, atol=1e-4, rtol=1e-3)
        ours.step()
        theirs.step()
    return wrapper


PLACES = {
    "host": lambda x: x,
    "first device": lambda x: x.to("sim:0"),
    "last device": lambda x: x.to("sim:3"),
    "with grad": lambda x: x.to("sim:0").requires_grad_() if x.is_floating_point() else x,
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_training_has_no_race(policy, model):
    make, make_input = MODELS[model]
    train(make, policy, lambda x: x, make_input)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("policy", ["default", "small buckets, threads", "no overlap"])
def test_inputs_from_anywhere_have_no_race(place, policy):
    train(normed, POLICIES[policy], place, lambda: torch.randn(16, 5))


@pytest.mark.parametrize("devices", [["sim:0"] * 4, ["sim:1", "sim:0", "sim:1", "sim:2"], ["sim:2"] * 2 + ["sim:0"]])
@pytest.mark.parametrize("policy", ["default", "small buckets, threads", "no overlap"])
def test_repeated_devices_have_no_race(devices, policy):
    train(normed, POLICIES[policy], lambda x: x.to(devices[0]), lambda: torch.randn(24, 5), devices=devices)


@pytest.mark.parametrize("policy", ["default", "small buckets", "small buckets, threads", "no overlap"])
def test_a_callers_own_streams_have_no_race(policy):
    streams = [torch.sim.Stream(device) for device in DEVICES]
    for device, stream in zip(DEVICES, streams, strict=True):
        stream.wait_stream(torch.sim.current_stream(device))
    with streams[3], streams[2], streams[1], streams[0]:
        train(normed, POLICIES[policy], lambda x: x.to("sim:0"), lambda: torch.randn(16, 5))


def test_changing_streams_between_steps_has_no_race():
    wrapper = train(normed, POLICIES["small buckets"], lambda x: x, lambda: torch.randn(16, 5))
    for _ in range(3):
        stream = torch.sim.Stream("sim:1")
        stream.wait_stream(torch.sim.current_stream("sim:1"))
        with stream:
            wrapper(torch.randn(16, 5)).sum().backward()
        torch.sim.current_stream("sim:1").wait_stream(stream)


class on_a_stream_of_its_own:
    """Device 1's current stream is another one, which nothing but the wrapper orders."""

    def __enter__(self):
        self._stream = torch.sim.stream(torch.sim.Stream("sim:1"))
        self._stream.__enter__()

    def __exit__(self, *error):
        self._stream.__exit__(*error)


def reads_in_vain():
    def forward(self, x):
        self.layer(x)  # and nothing that anybody would wait for

    return Call(forward, layer=nn.Linear(20, 20)).to("sim:0")


@pytest.mark.parametrize("is_overlapped", [True, False])
def test_unchanged_weights_may_be_read_on_another_stream(is_overlapped):
    base = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20)).to("sim:0")
    policy = Policy(**SMALL, skip_unchanged=True, overlap_broadcast=is_overlapped)
    wrapper = DataParallel(base, DEVICES, "sim:2", policy=policy)
    wrapper(torch.randn(8, 20))
    with on_a_stream_of_its_own():
        wrapper(torch.randn(8, 20))


@pytest.mark.parametrize("skip_unchanged", [True, False])
def test_weights_read_on_another_stream_are_written_after(skip_unchanged):
    policy = Policy(**SMALL, skip_unchanged=skip_unchanged)
    wrapper = DataParallel(base := reads_in_vain(), DEVICES, policy=policy)
    for _ in range(3):
        with torch.no_grad():
            wrapper(torch.randn(8, 20))
            with on_a_stream_of_its_own():
                wrapper(torch.randn(8, 20))
            for parameter in base.parameters():
                parameter.add_(1)


def test_threads_that_begin_together_get_the_same_side_streams(monkeypatch):
    """Else the one that began first would settle on streams of the other's."""
    new_pair = lanes._new_pair
    monkeypatch.setattr(lanes, "_new_pair", lambda *devices: time.sleep(0.01) or new_pair(*devices))
    streams = lanes.SideStreams([torch.device(device) for device in DEVICES])
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: streams.lanes(len(DEVICES), is_overlapped=True), range(2))
    assert [lane.near for lane in first] == [lane.near for lane in second]


def test_a_side_stream_inside_forward_waits_for_the_weights_it_reads():
    def forward(self, x):
        side = torch.sim.Stream(x.device)
        side.wait_stream(torch.sim.current_stream(x.device))
        with side:
            y = self.second(x)
        x.record_stream(side)
        z = self.first(x)
        torch.sim.current_stream(x.device).wait_stream(side)
        y.record_stream(torch.sim.current_stream(x.device))
        return y + z

    base = Call(forward, first=nn.Linear(20, 20), second=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=Policy(**SMALL))
    for _ in range(2):
        wrapper(torch.randn(8, 20))


@pytest.mark.parametrize("policy", ["default", "small buckets", "no overlap"])
def test_several_forwards_before_one_backward_have_no_race(policy):
    base = normed().to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES[policy])
    for _ in range(3):
        losses = [wrapper(torch.randn(16, 5)).sum() for _ in range(3)]
        sum(losses).backward()


def test_a_gradient_penalty_has_no_race():
    base = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 3)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["small buckets"])
    for _ in range(2):
        x = torch.randn(8, 5).to("sim:0").requires_grad_()
        (slope,) = torch.autograd.grad(wrapper(x).sum(), x, create_graph=True)
        slope.square().sum().backward()


def test_an_output_device_of_its_own_has_no_race():
    base = normed().to("sim:0")
    for output in ("sim:2", "cpu"):
        wrapper = DataParallel(base, DEVICES, output, policy=POLICIES["small buckets"])
        for _ in range(2):
            out = wrapper(torch.randn(16, 5))
            assert str(out.device) == output
            out.sum().backward()


def test_inference_has_no_race():
    base = normed().to("sim:0").eval()
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["small buckets"])
    for _ in range(3):
        with torch.no_grad():
            wrapper(torch.randn(16, 5))
            base[0].weight.add_(1)


def learn_sparsely(policy):
    """From the host, so that an input's memory may be that of a gradient which the engine has cloned on the hub."""
    base = nn.Embedding(11, 4, sparse=True).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        wrapper(torch.randint(11, (8, 3))).sum().backward()
        assert base.weight.grad.is_sparse
        optimizer.step()


@pytest.mark.parametrize("policy", POLICIES)
def test_sparse_gradients_have_no_race(policy):
    learn_sparsely(POLICIES[policy])


def steps(wrapper, make_input=lambda: torch.randn(8, 20), is_training=True):
    for _ in range(4):
        out = wrapper(make_input())
        if is_training:
            out.sum().backward()
        with torch.no_grad():
            for parameter in wrapper.parameters():
                parameter.add_(1)


@pytest.mark.parametrize(("output", "overlap"), [("sim:0", False), ("sim:1", True)])
def test_a_parallel_apply_of_a_subclass_has_no_race(output, overlap):
    class Own(DataParallel):
        def parallel_apply(self, replicas, inputs, kwargs):
            return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    base = Call(lambda self, x: x, unused=nn.Linear(20, 20)).to("sim:0")
    wrapper = Own(base, DEVICES, output, policy=Policy(**SMALL, overlap_copies=overlap))
    steps(wrapper, is_training=False)


def test_forgetting_to_wait_for_a_weight_is_a_race(monkeypatch):
    monkeypatch.setattr(Arrival, "wait", lambda self: None)
    with pytest.raises(RaceError):
        steps(DataParallel(nn.Linear(20, 20).to("sim:0"), DEVICES, policy=Policy(**SMALL)))


def test_forgetting_that_the_stage_still_leaves_is_a_race(monkeypatch):
    monkeypatch.setattr(Stage, "wait_until_free", lambda self, hub: None)
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


def test_forgetting_who_still_reads_a_flat_is_a_race(monkeypatch):
    monkeypatch.setattr(flat_module, "wait_stream", lambda waiting, awaited: None)

    with pytest.raises(RaceError):
        steps(DataParallel(reads_in_vain(), DEVICES, policy=Policy(**SMALL)), is_training=False)


def infer_elsewhere(policy):
    """Outputs go where no side stream ends, so that nothing but the hand-overs themselves orders the inputs'."""
    base = normed().to("sim:0").eval()
    wrapper = DataParallel(base, DEVICES, "sim:1", policy=policy)
    with torch.no_grad():
        for _ in range(6):
            wrapper(torch.randn(16, 5).to("sim:0") * 1)
            torch.zeros(16, 5, device="sim:0")


def share_the_pool(policy):
    """Side streams come from a pool (c10/cuda/CUDAStream.h): other code may be given the hub, and allocate on it."""
    base = normed().to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy)
    for _ in range(3):
        wrapper(torch.randn(16, 5)).sum().backward()
        with torch.no_grad():
            for parameter in base.parameters():
                parameter.add_(parameter.grad)
                parameter.grad = None
        hub = wrapper._replicas.streams.lanes(len(DEVICES), policy.overlap_reduce)[0].near
        with torch.sim.stream(hub):
            _ = [torch.zeros_like(parameter) for parameter in base.parameters()]


def come_and_go(policy):
    """The wrapper goes while its weights are read; other code is given its side streams, and allocates on them."""
    for _ in range(3):
        wrapper = DataParallel(reads_in_vain(), DEVICES, policy=policy)
        with torch.no_grad():
            wrapper(torch.randn(8, 20))
        lanes_but_the_first = wrapper._replicas.streams.lanes(len(DEVICES), policy.overlap_broadcast)[1:]
        del wrapper
        for lane in lanes_but_the_first:
            with torch.sim.stream(lane.far):
                _ = [torch.zeros(count, device=lane.device) for count in (400, 20)]


def train_from(place):
    return lambda policy: train(normed, policy, PLACES[place], lambda: torch.randn(16, 5), steps=6)


HANDOVERS = {
    "gradients wait": (handout, "wait_stream", train_from("first device")),
    "gradients kept": (handout, "record_stream", share_the_pool),
    "sparse gradients": (transfer, "wait_stream", learn_sparsely),
    "outputs wait": (join, "wait_stream", train_from("first device")),
    "weights kept": (flat_module, "record_stream", come_and_go),
    "inputs wait": (transfer, "wait_stream", infer_elsewhere),
    "inputs kept": (transfer, "record_stream", infer_elsewhere),
}


@pytest.mark.parametrize("name", HANDOVERS)
def test_each_handover_is_needed(name, monkeypatch):
    module, verb, run = HANDOVERS[name]
    for policy in ("small buckets", "only copies"):
        run(POLICIES[policy])
    monkeypatch.setattr(module, verb, lambda *_: None)
    with pytest.raises(RaceError):
        [run(POLICIES[policy]) for policy in ("small buckets", "only copies")]
