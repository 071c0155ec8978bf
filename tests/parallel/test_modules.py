"""Special modules: RNNs, attention, parametrized, scripted, lazy and custom ones."""

import contextvars
import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from dpbench.parallel import DataParallel, Policy, replicate
from tests.parallel.models import Call
from tests.parallel.oracle import assert_grads, assert_same_step

LANES = 2


def wrap(base, dispatch="sequence"):
    return DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))


def same_step(base, x, dispatch="sequence", steps=2):
    """Assert steps equal to the plain module's, for modules that compute items independently."""
    expected, wrapper = copy.deepcopy(base), wrap(base, dispatch)
    for _ in range(steps):
        for module in (wrapper, expected):
            module.zero_grad()
            out = module(x)
            (out[0] if isinstance(out, tuple) else out).square().sum().backward()
        torch.testing.assert_close(wrapper(x), expected(x))
        assert_grads(base, {name: p.grad for name, p in expected.named_parameters()}, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_rnns(kind, dispatch):
    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x)[0]

    same_step(Call(forward, rnn=kind(5, 4, num_layers=2, batch_first=True)), torch.randn(6, 3, 5), dispatch)


def test_rnns_under_no_grad():
    # pytorch #21108
    base = nn.LSTM(5, 4, batch_first=True)
    x = torch.randn(6, 3, 5)
    with torch.no_grad():
        torch.testing.assert_close(wrap(base)(x)[0], base(x)[0])


def test_multihead_attention_reads_a_weight_it_does_not_own():
    base = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    same_step(base, torch.randn(4, 3, 8))


@pytest.mark.parametrize(
    "parametrize",
    [parametrizations.weight_norm, parametrizations.orthogonal, nn.utils.weight_norm],
)
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_parametrizations(parametrize, dispatch):
    base = nn.Sequential(parametrize(nn.Linear(5, 4)), nn.Linear(4, 2))
    if parametrize is nn.utils.weight_norm:  # its computed weight cannot be deep-copied
        base(torch.randn(1, 5)).sum().backward()
        wrapper, x = wrap(base, dispatch), torch.randn(6, 5)
        torch.testing.assert_close(wrapper(x), base(x))
        return
    same_step(base, torch.randn(6, 5), dispatch)


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norm_keeps_the_first_replicas_vectors(norm, dispatch):
    def make():
        torch.manual_seed(0)
        base = norm(nn.Linear(5, 4))
        with torch.no_grad():
            base(torch.randn(2, 5))
        return base

    x = torch.randn(6, 5)
    base, alone = make(), make()
    wrapper = wrap(base, dispatch)
    for _ in range(3):
        wrapper(x).sum().backward()
        alone(x[:3]).sum().backward()
        for ours, theirs in zip(base.buffers(), alone.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_pruned_modules():
    base = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    prune.random_unstructured(base[0], "weight", amount=0.5)
    wrapper, x = wrap(base), torch.randn(6, 5)
    torch.testing.assert_close(wrapper(x), base(x))


def test_parameter_lists_and_dicts():
    grads = []

    def forward(self, x):
        grads.append([self.many[0].grad_fn, self.named["b"].grad_fn])
        return x * self.many[0] + self.many[1] * self.named["a"] + self.named["b"]

    base = Call(
        forward,
        many=nn.ParameterList([torch.randn(3), torch.randn(3)]),
        named=nn.ParameterDict({"a": torch.randn(3), "b": torch.randn(3)}),
    )
    wrap(base)(torch.randn(4, 3)).sum().backward()
    assert all(node is not None for nodes in grads for node in nodes)
    assert all(p.grad is not None for p in base.parameters())


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
def test_scripted_and_traced_modules():
    for base in (
        torch.jit.script(nn.Sequential(nn.Linear(5, 4), nn.ReLU())),
        torch.jit.trace(nn.Sequential(nn.Linear(5, 4), nn.ReLU()), torch.randn(2, 5)),
        nn.Sequential(torch.jit.script(nn.Linear(5, 4)), nn.ReLU()),
    ):
        x = torch.randn(4, 5)
        wrapper = wrap(base)
        for _ in range(2):
            torch.testing.assert_close(wrapper(x), base(x))
        wrapper(x).sum().backward()
        assert all(p.grad is not None for p in base.parameters())


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_python_modules_under_a_scripted_one_are_refused():
    base = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    base._modules._python_modules["0"] = nn.Linear(2, 2)  # torch's own API no longer does this
    with pytest.raises(
        RuntimeError, match="Cannot replicate network where python modules are children of ScriptModule"
    ):
        replicate(base, ["cpu"] * 2)


def test_fx_graph_modules():
    base = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(5, 4), nn.ReLU()))
    same_step(base, torch.randn(6, 5))


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

    base = Call(forward, layer=Own(5, 2))
    same_step(base.layer, torch.randn(4, 5))
    wrap(base)(torch.randn(4, 5))
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
    same_step(base, torch.randn(4, 5))


def test_a_module_that_is_a_dict_too():
    class Registry(nn.Linear, dict):
        __hash__ = object.__hash__

    same_step(nn.Sequential(Registry(5, 4), nn.ReLU()), torch.randn(4, 5))


def test_attributes_that_refer_to_a_module_stay_with_the_base():
    # As in stock: only registered children are replicated.
    base = Call(lambda self, x: x, inner=nn.Linear(2, 2))
    base.method = base.inner.forward
    base.listed = [base.inner]
    for replica in replicate(base, ["cpu"] * 2):
        assert replica.method.__self__ is base.inner
        assert replica.listed[0] is base.inner


def test_convolutions_in_channels_last():
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)).to(
            memory_format=torch.channels_last
        )

    x = torch.randn(4, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    assert_same_step(make, wrap, x, lanes=LANES, atol=1e-5)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("inner", [nn.Linear(5, 4), nn.LSTM(5, 4, batch_first=True)], ids=["plain", "custom"])
def test_weights_that_a_forward_puts_in_the_tables_are_used(inner, is_training):
    # torch.func.functional_call does so, and meta-learning sets its fast weights with it.
    def forward(self, x):
        doubled = {name: 2 * weight for name, weight in self.inner.named_parameters()}
        out = torch.func.functional_call(self.inner, doubled, (x,))
        return out[0] if isinstance(out, tuple) else out

    base, x = Call(forward, inner=inner), torch.randn(8, 3, 5)
    with torch.set_grad_enabled(is_training):
        torch.testing.assert_close(DataParallel(base, ["cpu"] * 4)(x), base(x))


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
    wrapper = DataParallel(base, ["cpu"] * 2, policy=Policy(dispatch=dispatch))
    for _ in range(3):
        _, states = wrapper(x, with_states=True)
        torch.testing.assert_close(states, expected)


def test_hooks_of_a_first_forward_accumulate_otherwise():
    base, x = Capturing(), torch.randn(4, 3)
    base(x)
    wrapper = DataParallel(base, ["cpu"] * 2, policy=Policy(dispatch="sequence"))
    for _ in range(2):
        with pytest.raises(ValueError, match="zip"):
            wrapper(x, with_states=True)
    assert [len(layer._forward_hooks) for layer in base.layers] == [4, 4]
