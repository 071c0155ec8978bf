"""Special modules: RNNs, attention, parametrized, scripted, lazy and custom ones."""

import contextvars

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, replicate
from tests.parallel.models import Call
from tests.parallel.on_lanes import LANES, wrap


def test_lazy_modules_are_refused_until_they_are_initialized():
    base = nn.LazyLinear(3)
    wrapper = wrap(base)
    with pytest.raises(RuntimeError, match="Modules with uninitialized parameters can't be used with `DataParallel`"):
        wrapper(torch.randn(4, 5))
    with pytest.raises(RuntimeError, match="Run a dummy forward pass to correctly initialize the modules"):
        replicate(base, ["cpu"] * 2)
    base(torch.randn(1, 5))
    assert wrapper(torch.randn(4, 5)).shape == (4, 3)


def test_a_lazy_module_on_one_device_is_initialized():
    assert DataParallel(nn.LazyLinear(3), ["cpu"])(torch.randn(4, 5)).shape == (4, 3)


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_python_modules_under_a_scripted_one_are_refused():
    base = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    base._modules._python_modules["0"] = nn.Linear(2, 2)  # torch's own API no longer does this
    with pytest.raises(
        RuntimeError, match="Cannot replicate network where python modules are children of ScriptModule"
    ):
        replicate(base, ["cpu"] * 2)


def test_a_modules_own_replication_is_called():
    class Own(nn.Linear):
        def _replicate_for_data_parallel(self):
            replica = super()._replicate_for_data_parallel()
            replica.is_own = True
            return replica

    seen = []

    def forward(self, x):
        seen.append(self.layer.is_own)
        return self.layer(x)

    wrap(Call(forward, layer=Own(5, 2)))(torch.randn(4, 5))
    assert seen == [True] * LANES


def test_a_module_with_its_own_setattr_gets_its_weights_by_it():
    class Listing(nn.Linear):
        def __setattr__(self, name, value):
            self.__dict__.setdefault("assigned", []).append(name)
            super().__setattr__(name, value)

    base = nn.Sequential(Listing(5, 4), nn.ReLU(), Listing(4, 2))
    assigned = base[0].assigned  # the base and all replicas share this list
    assigned.clear()
    replicate(base, ["cpu"] * 2)
    assert [name for name in assigned if name in {"weight", "bias"}] == ["weight", "bias"] * 2


def test_attributes_that_refer_to_a_module_stay_with_the_base():
    # As in stock: only registered children are replicated.
    base = Call(lambda self, x: x, inner=nn.Linear(2, 2))
    base.method = base.inner.forward
    base.listed = [base.inner]
    for replica in replicate(base, ["cpu"] * 2):
        assert replica.method.__self__ is base.inner
        assert replica.listed[0] is base.inner


class Capturing(nn.Module):
    """Installs hooks in the first forward that asks for states, and notes it in an attribute, as transformers does."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        self.states = contextvars.ContextVar("states", default=None)

    def forward(self, x, with_states=False):
        if with_states and not getattr(self, "is_installed", False):
            for layer in self.layers:
                layer.register_forward_hook(self.keep)
            self.is_installed = True
        self.states.set([] if with_states else None)
        out = self.layers(x)
        return out, self.states.get()

    def keep(self, layer, args, out):
        if self.states.get() is not None:
            self.states.get().append(out)


def test_hooks_of_a_first_forward_are_there_once_if_the_base_has_installed_them(dispatch):
    base, x = Capturing(), torch.randn(4, 3)
    _, expected = base(x, with_states=True)
    wrapper = wrap(base, 2, dispatch=dispatch)
    for _ in range(3):
        _, states = wrapper(x, with_states=True)
        torch.testing.assert_close(states, expected)


def test_hooks_of_a_first_forward_accumulate_otherwise():
    base, x = Capturing(), torch.randn(4, 3)
    base(x)
    wrapper = wrap(base, 2)
    for _ in range(2):
        with pytest.raises(ValueError, match="zip"):
            wrapper(x, with_states=True)
    assert [len(layer._forward_hooks) for layer in base.layers] == [4, 4]
