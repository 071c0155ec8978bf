"""Steps equal those of the plain module on each chunk, under each policy: a row for each kind of model."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from tests.parallel.models import Call, Tied, mlp, normed
from tests.parallel.on_lanes import KIND, LANES, assert_close, wrap
from tests.parallel.oracle import Chunked, assert_grads
from tests.parallel.remote import take_remote_paths
from tests.sampling import sampled

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit"),
    pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions.*"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state"),
]
SMALL = {"bucket_bytes": 64, "first_bucket_bytes": 16}
POLICIES = {
    "default": {},
    "small buckets, threads": {**SMALL, "dispatch": "threads"},
    "one tensor a bucket": {"coalesce": False},
    "nothing cached, over links": {**SMALL, "cache_replicas": False, "overlap_reduce": False},
}


class Own(nn.Sequential):
    """A custom module, by stock's protocol."""

    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()


class Listing(nn.Linear):
    """A custom module, since it has a `__setattr__` of its own."""

    def __setattr__(self, name, value):
        self.__dict__.setdefault("assigned", []).append(name)
        super().__setattr__(name, value)


class Registry(nn.Linear, dict):
    __hash__ = object.__hash__


class Casting(nn.Linear):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        return super().forward(x)


def recurrent(kind):
    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x.unsqueeze(1))[0]

    return lambda: Call(forward, rnn=kind(5, 4, num_layers=2, batch_first=True))


def checkpointed(is_reentrant):
    def forward(self, x):
        return checkpoint(self.b, checkpoint(self.a, x, use_reentrant=is_reentrant), use_reentrant=is_reentrant)

    return lambda: Call(forward, a=nn.Linear(5, 5), b=nn.Linear(5, 3))


def with_fast_weights(make):
    """`functional_call` puts weights in the tables, as meta-learning does."""

    def forward(self, x):
        doubled = {name: 2 * weight for name, weight in self.inner.named_parameters()}
        out = torch.func.functional_call(self.inner, doubled, (x,))
        return out[0] if isinstance(out, tuple) else out

    return lambda: Call(forward, inner=make())


def with_gradient_in_forward(self, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.inner(x).square().sum(), x, create_graph=True)
    return slope.square()


def convolutions(*formats):
    layers = [
        nn.Unflatten(1, (5, 1, 1)),
        nn.Conv2d(5, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 2, 3, padding=1),
    ]
    for layer, memory_format in zip(layers[1::2], formats, strict=True):
        layer.to(memory_format=memory_format)
    return nn.Sequential(*layers)


def lists_and_dicts():
    many, named = nn.ParameterList([torch.randn(5)] * 2), nn.ParameterDict({"a": torch.randn(5), "b": torch.randn(5)})
    return Call(
        lambda self, x: x * self.many[0] + self.many[1] * self.named["a"] + self.named["b"], many=many, named=named
    )


def used_by_some_lanes(self, x):
    return self.often(x) + self.sometimes(x) if x[0, 0] > 0 else self.often(x)


def sparse_on_some_lanes(self, tokens):
    return self.inner(tokens) * (self.inner.weight.sum() if tokens[0, 0] > 4 else 1)


def shared():
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.ReLU(), layer)


def frozen():
    base = mlp()
    base[0].weight.requires_grad_(False)
    return base


def pruned():
    base = mlp()
    prune.random_unstructured(base[0], "weight", amount=0.5)
    return base


def attention():
    inner = nn.TransformerEncoderLayer(5, 1, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 5)), inner)


def buffered(forward, buffer):
    return lambda: Call(forward, table=nn.Buffer(buffer()), scale=nn.Parameter(torch.ones(5)))


def complex_numbers():
    members = {
        "w": nn.Parameter(torch.randn(5, dtype=torch.cdouble)),
        "b": nn.Buffer(torch.randn(5, dtype=torch.cdouble)),
    }
    return Call(lambda self, x: (x * self.w + self.b).abs(), **members)


LAST, FIRST = torch.channels_last, torch.contiguous_format
MODELS = {
    "mlp": mlp,
    "k01 batch norm": normed,
    "tied": Tied,
    "shared module": shared,
    "frozen": frozen,
    "unused parameter": lambda: Call(lambda self, x: self.used(x), used=nn.Linear(5, 2), unused=nn.Linear(5, 2)),
    "used by some lanes": lambda: Call(used_by_some_lanes, often=nn.Linear(5, 2), sometimes=nn.Linear(5, 2)),
    "sparse": lambda: nn.Embedding(11, 3, sparse=True),
    "sparse beside dense": lambda: nn.Sequential(nn.Embedding(11, 5, sparse=True), nn.Linear(5, 3)),
    "sparse on some lanes": lambda: Call(sparse_on_some_lanes, inner=nn.Embedding(11, 3, sparse=True)),
    "channels last": lambda: convolutions(LAST, LAST),
    "channels last first": lambda: convolutions(LAST, FIRST),
    "channels last at the end": lambda: convolutions(FIRST, LAST),
    "LSTM": recurrent(nn.LSTM),
    "GRU": recurrent(nn.GRU),
    "RNN": recurrent(nn.RNN),
    "attention": attention,  # it reads a weight that it does not own
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(5, 4)),
    "old weight norm": lambda: nn.utils.weight_norm(nn.Linear(5, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(5, 4)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(5, 4)),
    "old spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(5, 4)),
    "pruned": pruned,
    "lists and dicts": lists_and_dicts,
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(5, 4), nn.ReLU())),
    "traced": lambda: torch.jit.trace(nn.Sequential(nn.Linear(5, 4), nn.ReLU()).double(), torch.randn(2, 5).double()),
    "scripted child": lambda: nn.Sequential(torch.jit.script(nn.Linear(5, 4)), nn.ReLU()),
    "graph module": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(5, 4), nn.ReLU())),
    "custom": lambda: Own(mlp()),
    "custom child": lambda: nn.Sequential(Own(mlp())),
    "own setattr": lambda: nn.Sequential(Listing(5, 4), nn.ReLU(), Listing(4, 2)),
    "a dict too": lambda: nn.Sequential(Registry(5, 4), nn.ReLU()),
    "fast weights": with_fast_weights(lambda: nn.Linear(5, 4)),
    "fast weights of a custom module": with_fast_weights(lambda: nn.RNN(5, 4)),
    "gradient in forward": lambda: Call(with_gradient_in_forward, inner=mlp()),
    "checkpoints": checkpointed(is_reentrant=False),
    "reentrant checkpoints": checkpointed(is_reentrant=True),
    "complex numbers": complex_numbers,
    "empty parameter": lambda: Call(
        lambda self, x: x * self.scale + self.nothing.sum(),
        scale=nn.Parameter(torch.ones(5)),
        nothing=nn.Parameter(torch.ones(0)),
    ),
    "buffer that requires grad": buffered(
        lambda self, x: x * self.table + self.scale, lambda: torch.ones(5, requires_grad=True)
    ),
    "expanded buffer": buffered(lambda self, x: x + self.table.sum(0), lambda: torch.ones(1, 5).expand(4, 5)),
    "sparse buffer": buffered(lambda self, x: torch.mm(self.table, x.T).T, lambda: torch.eye(5).to_sparse()),
    "buffer without strides": buffered(lambda self, x: (self.table @ x.T).T, lambda: torch.eye(5).to_sparse_csr()),
    "quantized buffer": buffered(
        lambda self, x: x * self.table.dequantize(),
        lambda: torch.quantize_per_tensor(torch.ones(5), 0.1, 0, torch.quint8),
    ),
    "bfloat16": lambda: mlp().bfloat16(),
    "autocast in forward": lambda: Casting(5, 4),
}
AS_MADE = {"bfloat16", "autocast in forward", "quantized buffer", "buffer that requires grad"}
"""All other models are converted to double precision."""
NOT_SIMULATED = {
    *("LSTM", "GRU"),
    *("buffer without strides", "quantized buffer", "autocast in forward", "scripted", "traced", "scripted child"),
    "buffer that requires grad",  # it is no leaf once it has moved to a device
}
CASES = [case for case in product(MODELS, POLICIES) if KIND == "cpu" or case[0] not in NOT_SIMULATED]


def inputs_for(name, size):
    if name.startswith(("sparse", "tied")) and "buffer" not in name:
        return torch.randint(11, (size, 3))
    x = torch.randn(size, 5)
    return x.bfloat16() if name == "bfloat16" else x if name in AS_MADE else x.double()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("name", "policy"), CASES if KIND == "cpu" else sampled(CASES, 40))
def test_steps_equal_those_of_the_plain_module_on_each_chunk(name, policy, monkeypatch):
    def make():
        return MODELS[name]() if name in AS_MADE else MODELS[name]().double()

    if policy.endswith("over links"):
        take_remote_paths(monkeypatch)
    base, expected = make(), Chunked(make(), LANES, make=make)
    base.load_state_dict(expected.base.state_dict())
    wrapper = wrap(base, **POLICIES[policy])
    atol = 0.25 if name == "bfloat16" else 1e-6
    for size in (16, 9, 2) if name == "mlp" else (16, 9):  # fewer lanes the second time
        x = inputs_for(name, size)
        if x.is_floating_point():
            x.requires_grad_()
        ours, theirs = wrapper(x), expected(x)
        assert_close(ours, theirs)
        for tensor in (*base.parameters(), *base.buffers(), *expected.base.parameters(), *expected.base.buffers()):
            tensor.grad = None
        slopes = []
        for output in (ours, theirs):
            x.grad = None
            if output.requires_grad:
                output.square().sum().backward()
            slopes.append(x.grad)
        assert slopes == [None, None] or torch.allclose(*slopes, atol=atol)
        assert_grads(base, expected.grads(), atol)
        for parameter in base.parameters():
            assert parameter.grad is None or parameter.grad.is_sparse or parameter.grad.stride() == parameter.stride()
        for (kind, buffer), other in zip(base.named_buffers(), expected.base.buffers(), strict=True):
            if not buffer.is_quantized:
                assert_close(buffer, other, msg=kind)
    with torch.no_grad():
        assert_close(wrapper(x), expected(x))
