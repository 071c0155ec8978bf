"""Unusual buffers: resized in forward, empty, quantized, sparse, of a subclass."""

import pytest
import torch
from torch import nn

from dpbench.parallel import replicate
from tests.parallel.models import Call
from tests.parallel.on_lanes import wrap


@pytest.mark.parametrize("before", [[], [1.0]], ids=["empty", "of one"])
def test_a_buffer_that_a_forward_resizes_does_not_grow_over_weights(before):
    """The observers of torch.ao.quantization have such buffers."""

    def forward(self, x):
        self.scale.resize_(4).fill_(77)
        return self.inner(x)

    base = Call(forward, inner=nn.Linear(3, 3))
    base.register_buffer("scale", torch.tensor(before))
    x = torch.randn(8, 3)
    torch.testing.assert_close(wrap(base)(x), base.inner(x))
    assert base.scale.tolist() == [77] * 4  # replica 0's changes to a buffer stay


def test_an_empty_buffer_that_a_forward_resizes_does_not_grow_over_another():
    def forward(self, x):
        self.low.resize_(3).fill_(77)
        return x * self.high

    base = Call(forward)
    base.register_buffer("low", torch.tensor([]))
    base.register_buffer("high", torch.ones(3))
    x = torch.randn(8, 3)
    torch.testing.assert_close(wrap(base)(x), x)


def test_unbucketed_tensors_do_not_keep_others_from_arriving():
    def place(buffer):
        return (buffer._values() if buffer.is_sparse else buffer).data_ptr()

    base = Call(None)
    for name, buffer in (("a", torch.ones(3)), ("b", torch.ones(3).to_sparse()), ("c", torch.ones(3).to_sparse())):
        base.register_buffer(name, buffer)
        base.register_buffer(f"after_{name}", torch.ones(3))
    first, second = (list(replica.buffers()) for replica in replicate(base, ["cpu"] * 2))
    assert set(map(place, first)).isdisjoint(map(place, second))


class Marked(torch.Tensor):
    pass


def test_a_buffer_of_a_subclass_arrives_as_one():
    seen = []
    base = Call(lambda self, x: seen.append(type(self.marked)) or x)
    base.register_buffer("marked", torch.ones(3).as_subclass(Marked))
    base.register_buffer("plain", torch.ones(3))
    wrap(base)(torch.randn(8, 3))
    assert seen == [Marked] * 4
