"""Checkpoints inside the base or around the wrapper recompute the values of their forward."""

import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import LANES, wrap


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_recomputes_with_the_weights_of_its_forward(reentrant, dispatch):
    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=reentrant)

    base = Call(forward, inner=mlp(), scale=1.0)
    wrapper = wrap(base, dispatch=dispatch)
    x = torch.randn(8, 5, requires_grad=True)
    loss = wrapper(x).tanh().sum()
    (want,) = torch.autograd.grad(base.inner(x).tanh().sum(), x)
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.data.mul_(3)
    second = wrapper(x.detach().requires_grad_()).sum()
    loss.backward()  # recomputes on the first forward's shells
    torch.testing.assert_close(x.grad[2:], want[2:])
    second.backward()


@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_a_custom_module_keeps_all_modules_below_it(reentrant, is_root):
    class Own(nn.Sequential):
        def _replicate_for_data_parallel(self):
            return super()._replicate_for_data_parallel()

        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=reentrant)

    base = Own(mlp()) if is_root else nn.Sequential(Own(mlp()))
    wrapper, x = wrap(base), torch.randn(8, 5, requires_grad=True)
    base(x).square().sum().backward()
    want, x.grad = x.grad, None
    loss = wrapper(x).square().sum()
    wrapper(x.detach().requires_grad_())
    loss.backward()
    torch.testing.assert_close(x.grad, want)


@pytest.mark.parametrize(("dispatch", "naps"), [("sequence", {0, 1}), ("threads", {0}), ("auto", {0, 1})])
def test_a_checkpoint_around_the_wrapper_recomputes_in_the_order_of_its_forward(dispatch, naps):
    # The checkpoint identifies saved tensors by a number, which all lanes share.
    calls = []

    def forward(self, x):
        calls.append(x)
        if (len(calls) - 1) // LANES in naps and x[0, 0] == 0:
            time.sleep(0.05)  # on threads the first lane would be the last
        return (x * self.weight).square()

    base = Call(forward, weight=nn.Parameter(torch.full((1,), 3.0)))
    x = torch.arange(8.0)[:, None].requires_grad_()
    checkpoint(wrap(base, dispatch=dispatch), x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, 18 * x.detach())
    torch.testing.assert_close(base.weight.grad, 6 * x.detach().square().sum()[None])
