"""Lanes on one GPU draw from its one generator: in their order, or the user is told."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpbench.parallel.autotune import TRIES
from tests.gpu.device import DEVICE, skip_without_gpu, wrap
from tests.parallel.models import Call

pytestmark = pytest.mark.gpu
skip_without_gpu()

STEPS = 2 * TRIES + 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_in_a_replica_draws_again_what_its_forward_drew(reentrant):
    wrapper = wrap(
        Call(lambda self, x: checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)), 4, dispatch="auto"
    )
    for _ in range(STEPS):
        x = torch.ones(64, 9, device=DEVICE, requires_grad=True)
        output = wrapper(x)
        output.sum().backward()
        assert torch.equal(x.grad, output)


def test_threads_that_draw_are_told_of():
    wrapper = wrap(nn.Dropout(0.5), 2, dispatch="threads")
    with pytest.warns(UserWarning, match=rf"random numbers were drawn from the generator of {DEVICE},"):
        wrapper(torch.ones(8, 5, device=DEVICE))
