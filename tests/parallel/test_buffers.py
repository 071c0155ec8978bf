"""Unusual buffers: resized in forward, empty, quantized, sparse, of a subclass."""

import copy

import pytest
import torch
from torch import nn

from dpbench.parallel import replicate
from tests.parallel.models import Call
from tests.parallel.on_lanes import FIRST, KIND, assert_close, wrap


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


GROW = {
    "resize_": lambda tensor: tensor.resize_(300).fill_(3),
    "out=": lambda tensor: torch.add(torch.ones(300, device=tensor.device), 2, out=tensor),
    "cat": lambda tensor: torch.cat([torch.full((100,), 3.0, device=tensor.device)] * 3, out=tensor),
    "set_": lambda tensor: tensor.set_(torch.full((300,), 3.0, device=tensor.device)),
}


def growing(how, behind=300):
    """The base, with a member `grows` still to come, and a buffer behind it."""

    def forward(self, x):
        if self.grows.numel() < 300:
            with torch.no_grad():
                GROW[how](self.grows)
        return self.last(x) * self.behind[:3] + self.grows.sum()

    base = Call(forward, last=nn.Linear(3, 3))
    base.register_buffer("before", torch.ones(3))
    return base, torch.randn(behind)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("behind", [300, 100_000])
@pytest.mark.parametrize("how", [how for how in GROW if KIND == "cpu" or how != "set_"])  # the simulator has none
def test_a_buffer_may_grow_in_place_beside_others(how, behind):
    base, values = growing(how, behind)
    base.register_buffer("grows", torch.ones(2))
    base.register_buffer("behind", values)
    plain, x = copy.deepcopy(base), torch.randn(8, 3)
    wrapper = wrap(base)
    for _ in range(2):
        assert_close(wrapper(x.to(FIRST)), plain(x))
    assert base.grows.numel() == 300


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("how", ["out=", "cat"])
def test_a_parameter_that_grows_over_others_is_an_error(how, is_trained):
    base, values = growing(how)
    base.grows = nn.Parameter(torch.ones(2), is_trained)
    base.behind = nn.Parameter(values)
    with pytest.raises(RuntimeError, match="the forward has resized a parameter from 2 items to 300"):
        wrap(base)(torch.randn(8, 3).to(FIRST))
    assert_close(wrap(nn.Linear(3, 3))(torch.randn(8, 3).to(FIRST)).shape, torch.Size([8, 3]))


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
