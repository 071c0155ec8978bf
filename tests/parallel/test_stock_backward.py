"""Gradients as in stock."""

import pytest
import torch
from torch import nn
from torch.autograd import grad

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import wrap


def test_freezing_takes_effect_at_the_next_forward():
    base = mlp()
    wrapper = wrap(base)
    wrapper(torch.randn(8, 5)).sum().backward()
    base.zero_grad()
    base[0].requires_grad_(False)
    wrapper(torch.randn(8, 5)).sum().backward()
    assert base[0].weight.grad is None
    base[0].requires_grad_(True)
    wrapper(torch.randn(8, 5)).sum().backward()
    assert base[0].weight.grad is not None


@pytest.mark.parametrize("user", [0, 1, 2], ids=["no replica", "the first", "another"])
def test_a_hook_of_a_parameter_gets_a_gradient_whichever_lane_used_it(user):
    """As in stock: zeros if there is no gradient; else the engine would pass None to the hook."""

    def forward(self, x):
        return self.used(x) + (self.hooked(x) if x[0, 0] == user else 0)

    base = Call(forward, used=nn.Linear(1, 1), hooked=nn.Linear(1, 1))
    base.hooked.weight.register_hook(lambda grad: seen.append(grad.item()) or grad.clamp(0, 0.5))
    wrapper, seen = wrap(base, 2), []
    wrapper(torch.tensor([[1.0], [2.0]])).sum().backward()
    assert seen == [user]
    assert base.hooked.weight.grad.item() == min(user, 0.5)
    assert base.hooked.bias.grad is None or user


def test_each_gradient_has_its_own_version_counter():
    base = mlp()
    wrap(base)(torch.randn(8, 5)).sum().backward()
    before = base[0].bias.grad._version
    base[0].weight.grad.mul_(2)
    assert base[0].bias.grad._version == before


def test_first_and_second_derivatives_are_those_of_the_plain_module():
    # A gradient penalty is one (pytorch #16532).
    base = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    names = [name for name, _ in base.named_parameters()]
    x = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
    wrapper = wrap(base, 2)
    first = grad(wrapper(x).square().sum(), [x, *base.parameters()], create_graph=True)
    plain = grad(base(x).square().sum(), [x, *base.parameters()], create_graph=True)
    for ours, theirs in zip(first, plain, strict=True):
        torch.testing.assert_close(ours, theirs)
    second = grad(sum(g.square().sum() for g in first), [x, *base.parameters()], allow_unused=True)
    expected = grad(sum(g.square().sum() for g in plain), [x, *base.parameters()], allow_unused=True)
    for name, ours, theirs in zip(["x", *names], second, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda m, n=name: f"{n}: {m}")


def test_hooks_of_a_parameter_see_the_sum_once():
    base, seen = mlp(), []
    base[0].weight.register_hook(lambda g: seen.append(g.clone()))
    wrap(base)(torch.randn(8, 5)).sum().backward()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], base[0].weight.grad)


def test_gradients_that_hooks_of_replicas_kept_stay_as_they_were():
    kept = []

    def forward(self, x):
        self.weight.register_hook(kept.append)
        return x * self.weight

    base = Call(forward, weight=nn.Parameter(torch.zeros(())))
    wrap(base)(torch.arange(8.0)).sum().backward()
    assert base.weight.grad.item() == sum(range(8))
    assert sorted(grad.item() for grad in kept) == [0 + 1, 2 + 3, 4 + 5, 6 + 7]


def test_sparse_gradients_that_hooks_of_replicas_kept_stay_as_they_were():
    kept = []

    def forward(self, x):
        self.table.weight.register_hook(kept.append)
        return self.table(x)

    base = Call(forward, table=nn.Embedding(4, 1, sparse=True))
    wrap(base)(torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])).sum().backward()
    assert [sorted(grad.to_dense().flatten().tolist()) for grad in kept] == [[0, 0, 0, 2]] * 4


def test_retain_graph_allows_a_second_backward():
    base = mlp()
    loss = wrap(base)(torch.randn(8, 5)).sum()
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in base.parameters()]
    loss.backward()
    for g, parameter in zip(once, base.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, 2 * g)
