"""Lanes on one GPU share its generator.

They draw random numbers in their order, or the user is warned.
"""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpbench.parallel.dispatch import TRIES
from tests.gpu.device import DEVICE, skip_without_gpu, wrap
from tests.parallel.models import Call

pytestmark = pytest.mark.gpu
skip_without_gpu()

STEPS = 3 * TRIES + 4


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_in_a_replica_draws_the_same_numbers_again(reentrant):
    wrapper = wrap(
        Call(lambda self, x: checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)), 4, dispatch="auto"
    )
    for _ in range(STEPS):
        x = torch.ones(64, 9, device=DEVICE, requires_grad=True)
        output = wrapper(x)
        output.sum().backward()
        assert torch.equal(x.grad, output)


def test_drawing_in_threads_warns():
    wrapper = wrap(nn.Dropout(0.5), 2, dispatch="threads")
    with pytest.warns(UserWarning, match=rf"random numbers were drawn from the generator of {DEVICE},"):
        wrapper(torch.ones(8, 5, device=DEVICE))
