"""Better than stock: torch.func may transform inputs; transformed weights and tangents are refused."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.forward_ad import dual_level, make_dual

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import mlp
from tests.parallel.on_lanes import FIRST, assert_close, wrap

TRANSFORMS = {
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, 2 * x])),
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).square().sum())(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,))[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_b2_inputs_may_be_transformed_by_torch_func_without_later_effect(transform, dispatch):
    base, x = mlp().requires_grad_(False).to(FIRST), torch.randn(8, 5, device=FIRST)
    wrapper = wrap(base, dispatch=dispatch)
    assert_close(transform(wrapper, x), transform(base, x))
    assert_close(wrapper(x), base(x))


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_b2_what_a_transform_returns_leads_to_weights_that_require_grad(transform, dispatch):
    base, x = mlp().to(FIRST), torch.randn(8, 5, device=FIRST)
    wrapper = wrap(base, dispatch=dispatch)
    weights = [weight for weight in base.parameters() if weight.dim() > 1]
    ours, theirs = transform(wrapper, x), transform(base, x)
    assert_close(ours, theirs)
    gradients = [torch.autograd.grad(result.square().sum(), weights) for result in (ours, theirs)]
    assert_close(*gradients)
    wrapper(x).sum().backward()
    assert base[0].weight.grad is not None


def with_tangents(f, weight):
    with dual_level():
        return f(make_dual(weight, weight))


WEIGHTS = {
    "vmap": lambda f, w: torch.func.vmap(f)(torch.stack([w, w])),
    "grad": lambda f, w: torch.func.grad(lambda w: f(w).sum())(w),
    "jvp": lambda f, w: torch.func.jvp(f, (w,), (w,)),
    "dual": with_tangents,
}


@pytest.mark.parametrize("transform", WEIGHTS.values(), ids=WEIGHTS)
def test_b2_transformed_weights_are_refused_because_derivatives_would_be_wrong(transform, dispatch):
    base, x = nn.Linear(5, 3, bias=False).to(FIRST), torch.randn(8, 5, device=FIRST)
    wrapper = wrap(base, dispatch=dispatch)
    weight = base.weight.detach()
    with pytest.raises(NotImplementedError, match="parameters and buffers of `DataParallel` cannot be"):
        transform(lambda w: torch.func.functional_call(nn.Sequential(wrapper), {"0.module.weight": w}, x), weight)
    assert_close(wrapper(x), base(x))


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("skip_unchanged", [True, False])
def test_a_forward_of_fake_tensors_leaves_nothing_behind(skip_unchanged, is_first):
    """No fake memory stays, and no memory counts as up to date because of a fake send."""
    base, x = nn.Linear(2, 3), torch.randn(4, 2)
    wrapper = DataParallel(base, ["cpu"] * 2, policy=Policy(skip_unchanged=skip_unchanged))
    if not is_first:
        wrapper(x)
        with torch.no_grad():
            base.weight.mul_(2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(wrapper(x), FakeTensor)
    assert_close(wrapper(x), base(x))
