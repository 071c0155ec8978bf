"""Buffers out of the ordinary: resized in forward, empty, quantized."""

import pytest
import torch
from torch import nn

from tests.parallel.four_lanes import wrap
from tests.parallel.models import Call


@pytest.mark.parametrize("before", [[], [1.0]], ids=["empty", "of one"])
def test_a_buffer_that_a_forward_resizes_does_not_grow_over_weights(before):
    """As those of torch.ao.quantization's observers, which the first forward gives their size."""

    def forward(self, x):
        self.scale.resize_(4).fill_(77)
        return self.inner(x)

    base = Call(forward, inner=nn.Linear(3, 3))
    base.register_buffer("scale", torch.tensor(before))
    x = torch.randn(8, 3)
    torch.testing.assert_close(wrap(base)(x), base.inner(x))
    assert base.scale.tolist() == [77] * 4  # what replica 0 does to a buffer stays


def test_an_empty_buffer_that_a_forward_resizes_does_not_grow_over_another():
    def forward(self, x):
        self.low.resize_(3).fill_(77)
        return x * self.high

    base = Call(forward)
    base.register_buffer("low", torch.tensor([]))
    base.register_buffer("high", torch.ones(3))
    x = torch.randn(8, 3)
    torch.testing.assert_close(wrap(base)(x), x)


def test_an_empty_parameter_has_a_gradient():
    base = Call(lambda self, x: x * self.scale + self.nothing.sum(), scale=nn.Parameter(torch.ones(3)))
    base.nothing = nn.Parameter(torch.ones(0))
    wrap(base)(torch.randn(8, 3)).sum().backward()
    assert base.nothing.grad.shape == (0,)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions.*")
def test_a_quantized_buffer_is_sent():
    base = Call(lambda self, x: x * self.table.dequantize())
    base.register_buffer("table", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
    x = torch.randn(8, 3)
    torch.testing.assert_close(wrap(base)(x), x)
