"""Every route: the same numbers as the stock wrapper's, no race, and no link that carries the weights twice."""

import copy
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, lanes, routes, transfer
from dpbench.parallel import links as links_module
from dpbench.parallel.lanes import SideStreams
from dpbench.parallel.policy import Route
from dpbench.parallel.routes import parents_of
from dpbench.records.recording import Copy
from dpbench.simulator import recording
from tests.parallel.models import Call
from tests.parallel.simulated.racing import DEVICES, POLICIES, SMALL
from tests.parallel.simulated.replay import replay
from tests.sampling import sampled

ROUTES = ("star", "chain")


@pytest.fixture(params=[1 << 22, 24], ids=["whole buckets", "pieces"])
def _pieces(request, monkeypatch):
    monkeypatch.setattr(routes, "PIECE_BYTES", request.param)


@pytest.fixture
def _small_pieces(monkeypatch):
    monkeypatch.setattr(routes, "PIECE_BYTES", 24)


def on(route, name="small buckets", **fields):
    return replace(POLICIES[name], route=route, **fields)


def gradients(wrap, x, passes=1):
    """The outputs and the gradients of a step of a convnet in double precision, and its buffers."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3, bias=False)]
    base = nn.Sequential(*layers).double().to("sim:0")
    out = wrap(base)(x)
    for number in range(passes):
        out.square().sum().backward(retain_graph=number + 1 < passes)
    return [tensor.detach().cpu() for tensor in (out, *[p.grad for p in base.parameters()], *base.buffers())]


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize(
    ("route", "batch", "passes", "coalesce"), sampled(product(ROUTES, (16, 3, 2, 1), (1, 3), (True, False)), 5)
)
def test_gradients_equal_stocks_and_two_runs_are_equal_bit_by_bit(route, batch, passes, coalesce):
    x = torch.randn(batch, 2, 5, 5, dtype=torch.double)
    policy = Policy(**SMALL, route=route, coalesce=coalesce)
    first, second = (gradients(lambda base: DataParallel(base, DEVICES, policy=policy), x, passes) for _ in range(2))
    theirs = gradients(lambda base: nn.DataParallel(base, [0, 1, 2, 3]), x, passes)
    for ours, again, stock in zip(first, second, theirs, strict=True):
        assert torch.equal(ours, again)
        torch.testing.assert_close(ours, stock)


def test_the_order_of_additions_is_the_documented_one():
    """Each lane's gradient is a number that loses bits in other orders."""
    shares = torch.tensor([1.0, 2.0**-24, 2.0**-24, 2.0**-24])
    a, b, c, d = shares
    wanted = {"star": ((a + b) + c) + d, "chain": a + (b + (c + d))}
    assert len({float(total) for total in wanted.values()}) > 1
    for route, total in wanted.items():
        base = nn.Linear(1, 1, bias=False).to("sim:0")
        DataParallel(base, DEVICES, policy=Policy(route=route))(shares[:, None]).sum().backward()
        assert base.weight.grad.item() == total.item(), route


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("route", ROUTES)
def test_gradients_of_gradients_equal_the_bare_modules(route):
    base = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    bare, x = copy.deepcopy(base), torch.randn(9, 5, dtype=torch.double)
    wrapper = DataParallel(base.to("sim:0"), DEVICES, policy=on(route))

    def second(module):
        parameters = list(module.parameters())
        first = torch.autograd.grad(module(x).square().sum(), parameters, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), parameters)

    for ours, theirs in zip(second(wrapper), second(bare), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("route", ROUTES)
def test_hooks_of_lanes_see_and_change_that_lanes_own_gradient(route, is_kept):
    """A kept gradient is not added into by the lanes behind it."""
    base, seen = nn.Linear(5, 4, bias=False).to("sim:0"), {}

    def forward(self, x):
        def hook(grad):
            seen[x.device.index] = grad, grad.cpu()
            return None if is_kept else grad * 2

        self.inner.weight.register_hook(hook)
        return self.inner(x)

    x = torch.randn(8, 5)
    for _ in range(2):
        base.zero_grad()
        DataParallel(Call(forward, inner=base), DEVICES, policy=on(route))(x).sum().backward()
        for grad, then in seen.values():
            torch.testing.assert_close(grad.cpu(), then, rtol=0, atol=0)
        assert sorted(seen) == [0, 1, 2, 3]
        expected = x.sum(0).expand(4, 5) * (1 if is_kept else 2)
        torch.testing.assert_close(base.weight.grad.cpu(), expected)


@pytest.mark.parametrize(("route", "missing"), sampled(product(ROUTES, [(0,), (1,), (3,), (1, 2), (0, 2, 3)]), 3))
def test_lanes_without_gradients_are_left_out(route, missing):
    def forward(self, x):
        return x[:, :4] * 1.0 if x.device.index in missing else self.layer(x)

    base = Call(forward, layer=nn.Linear(5, 4)).to("sim:0")
    x = torch.randn(8, 5, requires_grad=True)
    DataParallel(base, DEVICES, policy=on(route))(x).sum().backward()
    used = torch.cat([chunk for lane, chunk in enumerate(x.detach().chunk(4)) if lane not in missing])
    torch.testing.assert_close(base.layer.weight.grad.cpu(), used.sum(0).expand(4, 5))


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize(("route", "skip_unchanged"), sampled(product(ROUTES, [False, True]), 2))
def test_what_a_lane_writes_into_its_weights_reaches_no_other_lane(route, skip_unchanged):
    seen = {}

    def forward(self, x):
        with torch.no_grad():
            seen[x.device.index] = [tensor.mul_(-1).clone() for tensor in (self.weight, self.buffer)]
        return x

    base = Call(forward, weight=nn.Parameter(torch.ones(40), requires_grad=False), buffer=nn.Buffer(torch.ones(40)))
    wrapper = DataParallel(base.to("sim:0"), DEVICES, policy=on(route, skip_unchanged=skip_unchanged))
    for step in range(3):
        wrapper(torch.randn(8, 5))
        expected = torch.full((40,), -1.0) ** (step + 1)
        for tensor in (tensor for lane in seen.values() for tensor in lane):
            torch.testing.assert_close(tensor.cpu(), expected)


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("route", ROUTES)
def test_unchanged_weights_reach_lanes_that_missed_the_last_change(route):
    """Lanes that sat out a forward get the weights from a parent that has them already."""
    base = nn.Linear(20, 20).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=on(route, skip_unchanged=True))
    for batch in (8, 1, 2, 8, 3, 8):
        with torch.no_grad():
            if batch < 8:
                base.weight.add_(1)
            x = torch.randn(batch, 20)
            torch.testing.assert_close(wrapper(x).cpu(), base(x.to("sim:0")).cpu())


def copies_of(recorded):
    sizes = Counter()
    for event in recorded.events:
        if isinstance(event, Copy):
            sizes[event.source, event.destination] += event.size_bytes
    return sizes


@pytest.mark.parametrize("route", ROUTES)
def test_lanes_on_one_device_get_one_copy_over_the_link(route):
    base = nn.Linear(8, 8).to("sim:0")
    wrapper = DataParallel(base, ["sim:0", "sim:1", "sim:1", "sim:1"], policy=on(route))
    with recording() as recorded, torch.no_grad():
        wrapper(torch.randn(8, 8))
    to_lanes = copies_of(recorded)[0, 1]
    assert to_lanes == (3 if route == "star" else 1) * (256 + 32)


@pytest.mark.filterwarnings("ignore:copies from sim")
@pytest.mark.parametrize("route", ["auto", "chain"])
def test_a_chain_goes_around_a_link_that_corrupts_bytes(route, corrupt):
    corrupt("sim:1", source="sim:2")
    base = nn.Linear(8, 8).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=on(route))
    for batch in (8, 3, 8) if route == "auto" else (8, 8):  # the first three lanes have no such chain: a star
        with recording() as recorded:
            wrapper(torch.randn(batch, 8)).sum().backward()
        assert copies_of(recorded).keys().isdisjoint({(1, 2), (2, 1)})
    assert {(1, 3), (3, 2), (2, 3), (3, 1)} <= copies_of(recorded).keys()


@pytest.mark.usefixtures("_fresh_links")
def test_a_chain_measures_its_links_and_goes_around_a_slow_one(monkeypatch):
    asked = []

    def rate_between(one, other):
        asked.append((one.index, other.index))
        return 1e9 if asked[-1] == (1, 2) else 4e9

    monkeypatch.setattr(links_module, "rate_between", rate_between)
    links = links_module.find_links([torch.device(device) for device in DEVICES], Route.AUTO, is_staged=False)
    assert parents_of(Route.AUTO, links) == (0, 0, 3, 1)
    assert set(asked) == {(0, 1), (1, 2), (2, 3), (1, 3)}
    assert transfer._peers_are_sound.cache_info().currsize == 2 * len(set(asked))


def test_a_batch_for_fewer_lanes_than_devices_goes_by_a_star_instead_of_nccl():
    streams = SideStreams([torch.device(device) for device in DEVICES], route=Route.NCCL)
    routes = {count: {lane.route for lane in streams.lanes(count, is_overlapped=True)[1:]} for count in (3, 4)}
    assert routes == {3: {Route.STAR}, 4: {Route.NCCL}}


def bucket_copies(recorded):
    """The ids of the copies of buckets between devices, in order, by link."""
    ids = {}
    for event in recorded.events:
        if isinstance(event, Copy) and None not in {event.source, event.destination}:
            ids.setdefault((event.source, event.destination), []).append(event.id)
    return ids


@pytest.mark.parametrize(("hop", "other"), [((1, 2), (0, 1)), ((2, 3), (1, 2)), ((2, 3), (0, 1))])
def test_a_lane_receives_the_next_bucket_while_it_passes_one_on(hop, other):
    base = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=on("chain"))
    with torch.no_grad(), recording() as recorded:
        wrapper(torch.randn(8, 8))
    copies = bucket_copies(recorded)
    times = replay(recorded.events, {copies[hop][0]: 1000.0})
    assert len(copies[other]) > 4
    assert times[copies[other][-1]][1] < 1000


@pytest.mark.parametrize(("hop", "other"), [((2, 1), (3, 2)), ((1, 0), (2, 1))])
def test_a_lane_receives_the_next_gradients_while_it_sends_a_sum(hop, other):
    base = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=on("chain"))
    wrapper(torch.randn(8, 8)).sum().backward()
    loss = wrapper(torch.randn(8, 8)).sum()
    with recording() as recorded:
        loss.backward()
    copies = bucket_copies(recorded)
    times = replay(recorded.events, {copies[hop][0]: 1000.0})
    assert len(copies[other]) > 4
    assert times[copies[other][1]][1] < 1000


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("is_cut", [True, False])
def test_buckets_stay_whole_where_pieces_do_not_pay(is_cut, monkeypatch):
    monkeypatch.setattr(lanes, "has_pieces", lambda *_: is_cut)
    wrapper = DataParallel(nn.Linear(8, 8).to("sim:0"), DEVICES, policy=Policy(route="chain"))
    with recording() as recorded:
        wrapper(torch.randn(8, 8)).sum().backward()
    copies = bucket_copies(recorded)
    for hop in ((1, 2), (2, 3), (2, 1), (3, 2)):
        assert (len(copies[hop]) == 1) is not is_cut
