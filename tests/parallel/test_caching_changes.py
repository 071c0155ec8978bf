"""Changes of the base take effect at the next forward, with and without caching."""

import pytest
import torch
from torch import nn

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import LANES, sets_of, wrap

TREE_CHANGES = {
    "module replaced": lambda base: base.__setitem__(0, nn.Linear(5, 7)),
    "module added": lambda base: base.append(nn.Linear(3, 2)),
    "module removed": lambda base: base.__delitem__(2),
    "parameter replaced": lambda base: setattr(base[0], "bias", nn.Parameter(torch.ones(7))),
    "parameter removed": lambda base: setattr(base[0], "bias", None),
    "buffer added": lambda base: base[0].register_buffer("extra", torch.ones(2)),
    "dtype": lambda base: base.to(torch.float64).float(),
    "double": lambda base: base.double(),
    "shape": lambda base: setattr(base[2].bias, "data", torch.ones(1)),
    "class": lambda base: setattr(base[1], "__class__", nn.Sigmoid),
    "memory format": lambda base: setattr(base[0].weight, "data", base[0].weight.data.T.contiguous().T),
    "frozen": lambda base: base[0].weight.requires_grad_(False),
    "renamed": lambda base: base[2]._parameters.update(other=base[2]._parameters.pop("bias")),
    "tied": lambda base: setattr(base[0], "bias", base[0].weight),
}


@pytest.mark.parametrize("change", TREE_CHANGES.values(), ids=TREE_CHANGES)
def test_a_changed_tree_is_seen_at_the_next_forward(change):
    def seen(module):
        return [(name, p.shape, p.dtype, p.stride(), p.requires_grad) for name, p in module.named_parameters()]

    base = mlp()
    wrapper, x = wrap(base), torch.randn(8, 5)
    wrapper(x)
    change(base)
    try:
        want = base(x)
    except (RuntimeError, AttributeError) as error:
        with pytest.raises(type(error)):
            wrapper(x)
    else:
        torch.testing.assert_close(wrapper(x), want)
    assert [seen(replica) for replica in wrapper.replicate(base, wrapper.device_ids)] == [seen(base)] * LANES


def test_the_sets_of_a_former_tree_are_dropped():
    base = mlp()
    wrapper, x = wrap(base), torch.randn(8, 5)
    wrapper(x)
    (old,) = sets_of(wrapper)
    base[0] = nn.Linear(5, 7)
    wrapper(x)
    (new,) = sets_of(wrapper)
    assert new is not old


def test_the_sets_stay_when_another_module_is_replicated():
    wrapper = wrap(mlp())
    wrapper(torch.randn(8, 5))
    (before,) = sets_of(wrapper)
    wrapper.replicate(mlp(), wrapper.device_ids)
    assert sets_of(wrapper) == [before]


def test_another_module_is_another_tree():
    wrapper = wrap(mlp())
    wrapper(torch.randn(8, 5))
    wrapper.module = other = mlp()
    for replica in wrapper.replicate(other, wrapper.device_ids):
        torch.testing.assert_close(replica[0].weight, other[0].weight)


def test_a_scripted_modules_new_parameter_is_a_changed_tree():
    scripted, x = torch.jit.script(nn.Linear(5, 4)), torch.randn(8, 5)
    wrapper = wrap(nn.Sequential(scripted))
    wrapper(x)
    scripted.weight = nn.Parameter(torch.ones(4, 5))
    torch.testing.assert_close(wrapper(x), scripted(x))


def test_a_weight_moved_to_another_module_is_a_changed_tree():
    def forward(self, x):
        return x * getattr(self.a, "w", 1) + getattr(self.b, "w", 1)

    base = Call(forward, a=nn.Module(), b=nn.Module())
    base.a.w = nn.Parameter(torch.full((1,), 3.0))
    wrapper = wrap(base)
    assert wrapper(torch.ones(4)).tolist() == [4] * 4
    base.b.w = base.a.w
    del base.a.w
    assert wrapper(torch.ones(4)).tolist() == [4] * 4
    assert wrapper(torch.zeros(4)).tolist() == [3] * 4


@pytest.mark.parametrize("value", [2, 3])
def test_attributes_set_on_the_base_take_effect_at_the_next_forward(value):
    # pytorch PR #4216: "dp.module.pool.scale_factor *= 2" must take effect
    base = Call(lambda self, x: x * self.pool.factor, pool=nn.Module())
    base.pool.factor = 1
    wrapper = wrap(base)
    wrapper(torch.ones(4))
    wrapper.module.pool.factor *= value
    assert wrapper(torch.ones(4)).tolist() == [value] * 4


def test_the_training_flag_takes_effect_at_the_next_forward():
    wrapper = wrap(nn.Dropout(1.0))
    assert wrapper(torch.ones(4)).sum() == 0
    wrapper.eval()
    assert wrapper(torch.ones(4)).sum() == 4
