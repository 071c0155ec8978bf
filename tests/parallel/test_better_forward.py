"""Better than stock: constants a forward may take, outputs it may give, parameters it finds."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from dpbench.parallel import gather
from tests.parallel.models import Call
from tests.parallel.on_lanes import FIRST, LANES, assert_close, wrap


def test_b4_constants_go_with_a_batch_smaller_than_the_devices(dispatch):
    wrapper = wrap(Call(lambda self, x, y=0, *, k: x * k + y), dispatch=dispatch)
    x = torch.randn(2, 3)
    assert_close(wrapper(x, k=2.0), x * 2)
    assert_close(wrapper(x, 1, k=2.0), x * 2 + 1)
    assert_close(wrapper(1, y=x, k=3), x + 3)


@dataclasses.dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    parts: dict[str, torch.Tensor]
    name: str
    count: int
    nothing: Any = None
    derived: Any = dataclasses.field(init=False, default=None)


def test_b5_dataclasses_are_gathered_field_by_field(dispatch):
    wrapper = wrap(Call(lambda self, x: Output(x, {"twice": 2 * x}, "chunk", len(x))), dispatch=dispatch)
    x = torch.randn(7, 2)
    out = wrapper(x)
    assert type(out) is Output
    assert_close(out.logits, x)
    assert_close(out.parts["twice"], 2 * x)
    assert (out.name, out.count, out.nothing) == (["chunk"] * 4, [2, 2, 2, 1], None)


@pytest.mark.parametrize(
    "values",
    [[1, 2], [0.5, 1.5], [True, False], ["a", "b"], [b"a", b"b"], [{1}, {2}], [torch.Size([2]), torch.Size([1])]],
)
def test_b5_other_values_become_a_list_with_one_entry_per_replica(values):
    assert gather(values, FIRST) == values
    assert gather([{"v": value} for value in values], FIRST) == {"v": values}
    assert gather([(value,) for value in values], FIRST) == (values,)


def test_b5_none_stays_none():
    assert gather([None, None], FIRST) is None
    assert gather([{"x": None}, {"x": None}], FIRST) == {"x": None}


def test_b6_parameters_are_found_inside_forward(dispatch):
    seen = []

    def forward(self, x):
        first = next(self.parameters())
        seen.append((first.device.type, first.dtype, first.requires_grad, [n for n, _ in self.named_parameters()]))
        return self.inner(x)

    base = Call(forward, inner=nn.Linear(5, 2))
    wrapper = wrap(base, dispatch=dispatch)
    wrapper(torch.randn(8, 5))
    assert seen == [(FIRST.type, torch.float32, True, ["inner.weight", "inner.bias"])] * LANES


def test_b6_in_training_a_forward_cannot_freeze_its_weights(dispatch):
    base = Call(lambda self, x: self.inner.requires_grad_(False)(x), inner=nn.Linear(5, 2))
    wrapper = wrap(base, dispatch=dispatch)
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        wrapper(torch.randn(8, 5))
    assert base.inner.weight.requires_grad
    base.inner.requires_grad_(False)  # before the forward
    assert not wrapper(torch.randn(8, 5)).requires_grad
