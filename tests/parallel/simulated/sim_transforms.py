"""B2: `torch.func` transforms inputs on several devices, and what it returns leads to the weights."""

import pytest
import torch

from dpbench.parallel import DataParallel
from tests.parallel.models import mlp
from tests.parallel.test_better_transforms import TRANSFORMS


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_of_inputs_work_over_links(transform):
    base = mlp().to("sim:0")
    x = torch.randn(6, 5).to("sim:0")
    wrapper = DataParallel(base, [0, 1, 2])
    weights = [weight for weight in base.parameters() if weight.dim() > 1]
    found, expected = transform(wrapper, x), transform(base, x)
    gradients = [torch.autograd.grad(result.square().sum(), weights) for result in (found, expected)]
    torch.testing.assert_close(
        [tensor.cpu() for tensor in (found, *gradients[0])], [t.cpu() for t in (expected, *gradients[1])]
    )
