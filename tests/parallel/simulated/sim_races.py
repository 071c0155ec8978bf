"""No two operations touch the same bytes in an undefined order.

The simulator raises RaceError if bytes are read or written in an undefined order. So a step without an error is
a step without a race.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, parallel_apply, replicate, routes
from dpbench.parallel import scatter_gather as join
from tests.parallel.models import Call, Tied, normed
from tests.parallel.simulated.racing import DEVICES, PLACES, POLICIES, SMALL, steps, train, train_sparsely
from tests.sampling import sampled


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.inner(x).flatten(1))


MODELS = {
    "batch norm": (normed, lambda: torch.randn(24, 5)),
    "attention": (Attention, lambda: torch.randn(12, 3, 8)),
    "tied": (Tied, lambda: torch.randint(11, (12, 3))),
}
PLACEMENTS = {
    "four devices": DEVICES,
    "another order": ["sim:2", "sim:0", "sim:3", "sim:1"],
    "one device": ["sim:0"] * 4,
    "two devices": ["sim:2"] * 2 + ["sim:0"],
    "two lanes each": ["sim:0", "sim:1", "sim:1", "sim:2", "sim:2", "sim:3"],
    "the base's again": ["sim:0", "sim:1", "sim:0", "sim:2", "sim:1"],
}
ROUTES = ("star", "chain")
UNREAD = ["default", "small buckets", "skip unchanged", "only broadcast", "only reduce", "only copies"]
CASES = [
    *product(ROUTES, POLICIES, MODELS, ["host"], ["four devices"]),
    *product(["chain"], POLICIES, ["batch norm"], [*PLACES][1:], ["four devices"]),
    *product(["star"], ["default", "no overlap"], ["batch norm"], [*PLACES][1:], ["four devices"]),
    *product(["chain"], POLICIES, ["batch norm"], ["first device"], [*PLACEMENTS][1:]),
    *product(["star"], ["default", "no overlap"], ["batch norm"], ["first device"], [*PLACEMENTS][1:]),
]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """A chain sends in pieces also what the tests send."""
    monkeypatch.setattr(routes, "PIECE_BYTES", 24)


@pytest.mark.parametrize(("route", "policy", "model", "place", "placement"), sampled(CASES, 36))
def test_training_has_no_race(route, policy, model, place, placement):
    make, make_input = MODELS[model]
    devices = PLACEMENTS[placement]
    move = (lambda x: x.to(devices[0])) if place == "first device" else PLACES[place]
    train(make, replace(POLICIES[policy], route=route), move, make_input, devices=devices, steps=3)


@pytest.mark.parametrize("batches", [(16, 6, 16), (16, 16, 16)], ids=str)
@pytest.mark.parametrize(("route", "policy"), sampled(product(ROUTES, ["default", "small buckets", "no overlap"]), 4))
def test_several_forwards_before_their_backwards_have_no_race(route, policy, batches):
    wrapper = DataParallel(normed().to("sim:0"), DEVICES, policy=replace(POLICIES[policy], route=route))
    for _ in range(3):
        losses = [wrapper(torch.randn(batch, 5)).sum() for batch in batches]
        for loss in [sum(losses)] if len(set(batches)) == 1 else reversed(losses):
            loss.backward()


@pytest.mark.parametrize("source", ["cpu", "sim:1"])
@pytest.mark.parametrize(("route", "policy"), sampled(product(ROUTES, POLICIES), 14))
def test_sparse_gradients_have_no_race(route, policy, source):
    train_sparsely(replace(POLICIES[policy], route=route), source)


@pytest.mark.parametrize(
    ("route", "name"),
    sampled(
        product(ROUTES, UNREAD),
        8,
    ),
)
def test_weights_that_no_forward_reads_may_be_written_after_it(route, name):
    base = Call(lambda self, x: x * 1, unused=nn.Linear(20, 20)).to("sim:0")
    steps(DataParallel(base, DEVICES, policy=replace(POLICIES[name], route=route)), is_training=False)


def test_a_gradient_penalty_has_no_race():
    base = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 3)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["small buckets"])
    for _ in range(2):
        x = torch.randn(8, 5).to("sim:0").requires_grad_()
        (slope,) = torch.autograd.grad(wrapper(x).sum(), x, create_graph=True)
        slope.square().sum().backward()


def test_another_output_device_has_no_race():
    base = normed().to("sim:0")
    for output in ("sim:2", "cpu"):
        wrapper = DataParallel(base, DEVICES, output, policy=POLICIES["small buckets"])
        for _ in range(2):
            out = wrapper(torch.randn(16, 5))
            assert str(out.device) == output
            out.sum().backward()


def _own_apply(self, replicas, inputs, kwargs):
    return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])


@pytest.mark.parametrize(("output", "overlap"), [("sim:0", False), ("sim:1", True)])
def test_a_parallel_apply_of_a_subclass_has_no_race(output, overlap):
    base = Call(lambda self, x: x, unused=nn.Linear(20, 20)).to("sim:0")
    own = type("Own", (DataParallel,), {"parallel_apply": _own_apply})
    steps(own(base, DEVICES, output, policy=Policy(**SMALL, overlap_copies=overlap)), is_training=False)


def _own_forward(gathers):
    def forward(self, x):
        chunks, kwargs = self.scatter((x,), {}, self.device_ids)
        outputs = self.parallel_apply(self.replicate(self.module, self.device_ids), chunks, kwargs)
        return self.gather(outputs, self.output_device) if gathers else outputs

    return forward


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param({"parallel_apply": _own_apply, "gather": lambda _, outputs, __: outputs}, id="apply and gather"),
        pytest.param({"forward": _own_forward(gathers=False)}, id="a forward without gather"),
        pytest.param({"forward": _own_forward(gathers=True), "parallel_apply": _own_apply}, id="forward and apply"),
    ],
)
def test_stages_of_a_subclass_have_no_race(stages):
    """The weights are written after the forward, while the near streams may still send them."""
    base = Call(lambda self, x: x, unused=nn.Linear(20, 20)).to("sim:0")
    own = type("Own", (DataParallel,), stages)
    steps(own(base, DEVICES, policy=Policy(**SMALL, overlap_copies=False)), is_training=False)


@pytest.mark.parametrize("devices", [DEVICES, ["sim:0", "sim:1", "sim:0", "sim:1"]], ids=["apart", "repeated"])
@pytest.mark.parametrize("name", ["default", "only copies"])
def test_outputs_that_are_the_chunks_have_no_race(name, devices):
    """The first lane's chunk has the memory of its inbound stream, and its near stream reads the chunk last."""
    base = Call(lambda self, x: [x, (x, x[1:])], unused=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, devices, policy=POLICIES[name])
    for _ in range(4):
        wrapper(torch.randn(8, 20))


@pytest.mark.parametrize("policy", ["default", "small buckets", "small buckets, threads"])
def test_gradients_may_be_read_after_a_failed_backward_and_one_more_forward(policy):
    """The failed backward's sums were under way on the hub; the engine does not wait for them."""

    def fail(gradient):
        raise ValueError("failed")

    base = normed().to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES[policy])
    wrapper(torch.randn(16, 5)).sum().backward()
    x = torch.randn(16, 5, requires_grad=True)
    x.register_hook(fail)
    with pytest.raises(ValueError, match="failed"):
        wrapper(x).sum().backward()
    wrapper(torch.randn(16, 5))
    for parameter in base.parameters():
        parameter.grad.mul_(0)
    wrapper(torch.randn(16, 5)).sum().backward()


@pytest.mark.parametrize("is_in_place", [False, True], ids=["new", "in place"])
@pytest.mark.parametrize("policy", ["default", "small buckets", "no overlap"])
def test_hooks_of_delivered_weights_have_no_race(policy, is_in_place):
    """The engine lets no node wait for a hook on another device."""

    def double(grad):
        return None if is_in_place and grad.mul_(2) is grad else grad * 2

    def forward(self, x):
        self.layer.weight.register_hook(double)
        return self.layer(x)

    layer = nn.Linear(20, 20)
    base = Call(forward, layer=layer).to("sim:0")
    x = torch.randn(8, 20)
    wrapper = DataParallel(base, DEVICES, policy=POLICIES[policy])
    for _ in range(2):
        base.zero_grad()
        wrapper(x).sum().backward()
        expected = 2 * x.sum(0).expand(20, 20)
        torch.testing.assert_close(layer.weight.grad.cpu(), expected)


def test_weights_may_be_written_after_a_forward_that_failed():
    def forward(self, x):
        raise KeyError

    base = Call(forward, unused=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["small buckets"])
    with pytest.raises(KeyError):
        wrapper(torch.randn(8, 20))
    with torch.no_grad():
        base.unused.weight.add_(1)


@pytest.mark.parametrize("name", ["default", "only copies"])
def test_an_inputs_memory_is_kept_until_its_chunks_are_sent(name):
    """Without weights, and with outputs on another device, only the waits for the chunks count."""
    wrapper = DataParallel(Call(lambda self, x: x), DEVICES, "sim:1", policy=POLICIES[name])
    x = torch.randn(16, 5).to("sim:0")
    for _ in range(2):
        wrapper(x * 1)
        torch.zeros(16, 5, device="sim:0")


def test_the_base_may_be_written_once_it_is_replicated():
    base = nn.Linear(20, 20).to("sim:0")
    replicas = replicate(base, DEVICES, policy=Policy(**SMALL))
    with torch.no_grad():
        base.weight.add_(1)
    assert len(replicas) == len(DEVICES)


def test_memory_that_weights_have_moved_to_is_freed_after_they_were_read():
    """The first forward's weights are kept, so that the second's are in new memory."""
    kept = []

    def forward(self, x):
        kept.append(self.layer.weight)
        self.layer(x)

    base = Call(forward, layer=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=Policy(**SMALL))
    lanes_but_the_first = wrapper._replicas.streams.lanes(len(DEVICES), is_overlapped=True)[1:]
    with torch.no_grad():
        wrapper(torch.randn(8, 20))
        wrapper(torch.randn(8, 20))
    del kept[len(DEVICES) :], wrapper
    for lane in lanes_but_the_first:
        with torch.sim.stream(lane.far):
            _ = [torch.zeros(count, device=lane.device) for count in (400, 20)]


def test_a_staging_buffer_is_written_again_after_all_lanes_have_read_it():
    """Between two packed buckets, frozen weights are sent unpacked to the lane without them."""
    frozen = [nn.Linear(20, 20, bias=False).requires_grad_(False) for _ in range(3)]
    base = nn.Sequential(nn.LayerNorm(20), *frozen, nn.LayerNorm(20)).to("sim:0")
    policy = Policy(bucket_bytes=160, first_bucket_bytes=160, skip_unchanged=True)
    wrapper = DataParallel(base, DEVICES[:3], policy=policy)
    for batch in (2, 3):
        wrapper(torch.randn(batch, 20))
        with torch.no_grad():
            for norm in (base[0], base[-1]):
                norm.weight.add_(1)
                norm.bias.add_(1)


@pytest.mark.parametrize("is_backward", [False, True], ids=["outputs", "gradients"])
def test_copies_made_before_an_error_end_before_their_memory_is_used_again(is_backward, monkeypatch):
    """The third copy fails. The caller's stream has waited for the first two, though nothing else asks it to."""
    verb = "copy_to" if is_backward else "copy_into"
    copy, made = getattr(join, verb), []

    def failing(*args):
        made.append(args)
        if len(made) == 3:
            raise MemoryError("no room")
        return copy(*args)

    base = Call(lambda self, x: self.layer(x), layer=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=POLICIES["only copies"])
    x = torch.randn(16, 20)
    outputs = wrapper(x) if is_backward else None
    monkeypatch.setattr(join, verb, failing)
    with pytest.raises(MemoryError):
        outputs.mul(2).sum().backward() if is_backward else wrapper(x)
    del outputs
    made.clear()
    for _ in range(4):
        torch.zeros(16, 20, device="sim:0")  # a race with a copy that nothing waits for
