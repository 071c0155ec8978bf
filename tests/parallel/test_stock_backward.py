"""Gradients as in stock."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import grad

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call, Tied, mlp, normed
from tests.parallel.oracle import assert_same_step


def on(lanes=4, dispatch="sequence", **policy):
    return lambda base: DataParallel(base, ["cpu"] * lanes, policy=Policy(dispatch=dispatch, **policy))


@pytest.mark.parametrize("batch", [16, 9, 2])
@pytest.mark.parametrize("make", [mlp, normed])
def test_a_step_equals_that_of_the_chunked_module(make, batch, dispatch):
    if make is normed:
        batch = max(batch, 8)
    assert_same_step(make, on(4, dispatch), torch.randn(batch, 5))


def test_buckets_do_not_change_a_step(dispatch):
    assert_same_step(normed, on(4, dispatch, bucket_bytes=64, first_bucket_bytes=16), torch.randn(16, 5))


def test_tied_parameters_get_both_gradients():
    base, tokens = Tied(), torch.randint(11, (8, 3))
    expected = copy.deepcopy(base)
    on()(base)(tokens).square().sum().backward()
    expected(tokens).square().sum().backward()
    torch.testing.assert_close(base.head.weight.grad, expected.head.weight.grad)


def test_sparse_gradients_stay_sparse():
    base, tokens = nn.Embedding(7, 3, sparse=True), torch.tensor([1, 2, 1, 5])
    expected = copy.deepcopy(base)
    on()(base)(tokens).square().sum().backward()
    expected(tokens).square().sum().backward()
    assert base.weight.grad.is_sparse
    torch.testing.assert_close(base.weight.grad.to_dense(), expected.weight.grad.to_dense())


def test_sparse_and_dense_gradients_share_a_bucket():
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(7, 5, sparse=True), nn.Linear(5, 3))

    base, expected, tokens = make(), make(), torch.tensor([1, 2, 1, 5])
    on()(base)(tokens).square().sum().backward()
    expected(tokens).square().sum().backward()
    torch.testing.assert_close(base[0].weight.grad.to_dense(), expected[0].weight.grad.to_dense())
    torch.testing.assert_close(base[1].weight.grad, expected[1].weight.grad)


@pytest.mark.parametrize("batch", [[0, 1], [1, 0], [0, 0, 1, 1]])
def test_a_gradient_that_is_sparse_on_some_lanes_is_dense(batch):
    def forward(self, tokens):
        return self.inner(tokens) * (self.inner.weight.sum() if tokens.any() else 1)

    base, tokens = Call(forward, inner=nn.Embedding(7, 3, sparse=True)), torch.tensor(batch)
    expected = copy.deepcopy(base)
    on(len(batch))(base)(tokens).sum().backward()
    for token in tokens:
        expected(token).sum().backward()
    torch.testing.assert_close(base.inner.weight.grad, expected.inner.weight.grad)


def test_frozen_parameters_get_none():
    base = mlp()
    base[0].weight.requires_grad_(False)
    on()(base)(torch.randn(8, 5)).sum().backward()
    assert base[0].weight.grad is None
    assert base[0].bias.grad is not None


def test_freezing_takes_effect_at_the_next_forward():
    base = mlp()
    wrapper = on()(base)
    wrapper(torch.randn(8, 5)).sum().backward()
    base.zero_grad()
    base[0].requires_grad_(False)
    wrapper(torch.randn(8, 5)).sum().backward()
    assert base[0].weight.grad is None
    base[0].requires_grad_(True)
    wrapper(torch.randn(8, 5)).sum().backward()
    assert base[0].weight.grad is not None


def test_a_parameter_no_replica_used_has_no_gradient():
    # As with the bare module. Stock gives zeros, and an optimizer would apply weight decay.
    base = Call(lambda self, x: self.used(x), used=nn.Linear(5, 2), unused=nn.Linear(5, 2))
    on()(base)(torch.randn(8, 5)).sum().backward()
    assert base.unused.weight.grad is None
    assert base.used.weight.grad is not None


@pytest.mark.parametrize("user", [0, 1, 2], ids=["no replica", "the first", "another"])
def test_a_hook_of_a_parameter_gets_a_gradient_whichever_lane_used_it(user):
    """As in stock: zeros if there is no gradient; else the engine would pass None to the hook."""

    def forward(self, x):
        return self.used(x) + (self.hooked(x) if x[0, 0] == user else 0)

    base = Call(forward, used=nn.Linear(1, 1), hooked=nn.Linear(1, 1))
    base.hooked.weight.register_hook(lambda grad: seen.append(grad.item()) or grad.clamp(0, 0.5))
    wrapper, seen = on(2)(base), []
    wrapper(torch.tensor([[1.0], [2.0]])).sum().backward()
    assert seen == [user]
    assert base.hooked.weight.grad.item() == min(user, 0.5)
    assert base.hooked.bias.grad is None or user


def test_a_parameter_that_some_replicas_used_gets_their_gradients():
    def forward(self, x):
        return self.often(x) + self.sometimes(x) if x[0, 0] > 4 else self.often(x)

    base = Call(forward, often=nn.Linear(1, 1, bias=False), sometimes=nn.Linear(1, 1, bias=False))
    on()(base)(torch.arange(8.0)[:, None]).sum().backward()
    assert base.often.weight.grad.item() == sum(range(8))
    assert base.sometimes.weight.grad.item() == 6 + 7


def test_gradients_have_the_layout_of_their_parameters():
    base = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3)).to(memory_format=torch.channels_last)
    base[1].to(memory_format=torch.contiguous_format)
    wrapper = on()(base)
    for _ in range(2):
        wrapper(torch.randn(8, 3, 8, 8)).sum().backward()
    for parameter in base.parameters():
        assert parameter.grad.stride() == parameter.stride()


def test_each_gradient_has_its_own_version_counter():
    base = mlp()
    on()(base)(torch.randn(8, 5)).sum().backward()
    before = base[0].bias.grad._version
    base[0].weight.grad.mul_(2)
    assert base[0].bias.grad._version == before


def test_first_and_second_derivatives_are_those_of_the_plain_module():
    base = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    names = [name for name, _ in base.named_parameters()]
    x = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
    wrapper = on(2)(base)
    first = grad(wrapper(x).square().sum(), [x, *base.parameters()], create_graph=True)
    plain = grad(base(x).square().sum(), [x, *base.parameters()], create_graph=True)
    for ours, theirs in zip(first, plain, strict=True):
        torch.testing.assert_close(ours, theirs)
    second = grad(sum(g.square().sum() for g in first), [x, *base.parameters()], allow_unused=True)
    expected = grad(sum(g.square().sum() for g in plain), [x, *base.parameters()], allow_unused=True)
    for name, ours, theirs in zip(["x", *names], second, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda m, n=name: f"{n}: {m}")


def test_gradient_penalty():
    # pytorch #16532
    base, x = mlp(), torch.randn(8, 5)
    expected = copy.deepcopy(base)
    for module in (on()(base), expected):
        points = x.clone().requires_grad_()
        (slope,) = grad(module(points).sum(), points, create_graph=True)
        slope.square().sum().backward()
    for ours, theirs in zip(base.parameters(), expected.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_hooks_of_a_parameter_see_the_sum_once():
    base, seen = mlp(), []
    base[0].weight.register_hook(lambda g: seen.append(g.clone()))
    on()(base)(torch.randn(8, 5)).sum().backward()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], base[0].weight.grad)


def test_gradients_that_hooks_of_replicas_kept_stay_as_they_were():
    kept = []

    def forward(self, x):
        self.weight.register_hook(kept.append)
        return x * self.weight

    base = Call(forward, weight=nn.Parameter(torch.zeros(())))
    on()(base)(torch.arange(8.0)).sum().backward()
    assert base.weight.grad.item() == sum(range(8))
    assert sorted(grad.item() for grad in kept) == [0 + 1, 2 + 3, 4 + 5, 6 + 7]


def test_sparse_gradients_that_hooks_of_replicas_kept_stay_as_they_were():
    kept = []

    def forward(self, x):
        self.table.weight.register_hook(kept.append)
        return self.table(x)

    base = Call(forward, table=nn.Embedding(4, 1, sparse=True))
    on()(base)(torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])).sum().backward()
    assert [sorted(grad.to_dense().flatten().tolist()) for grad in kept] == [[0, 0, 0, 2]] * 4


def test_retain_graph_allows_a_second_backward():
    base = mlp()
    loss = on()(base)(torch.randn(8, 5)).sum()
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in base.parameters()]
    loss.backward()
    for g, parameter in zip(once, base.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, 2 * g)
