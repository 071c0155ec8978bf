"""Modules that people reported with data-parallel wrappers elsewhere train as the plain module."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, one_hot
from torch.nn.utils import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from tests.parallel.models import Call
from tests.parallel.on_lanes import FIRST, LANES, assert_close, wrap

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")


def twice(model, x):
    return model(x) + model(2 * x)


def densely(self, x):
    """A closure over the replica's layers, as of memory-efficient DenseNets."""
    norm, conv = self.norm, self.conv
    return checkpoint(lambda *parts: conv(norm(torch.cat(parts, 1)).relu()), x, self.first(x), use_reentrant=True)


def in_windows(self, x):
    window = torch.hann_window(16, device=next(self.parameters()).device)
    spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
    return torch.istft(spectrum * self.gain, 16, 4, window=window, length=x.size(1))


class Masked(nn.Module):
    """`mask` is a property whose value a ``__setattr__`` registers as a buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.mask = torch.tensor([[1.0], [0], [1]])

    def __setattr__(self, name, value):
        if name == "mask":
            self.register_buffer("the_mask", value)
        else:
            super().__setattr__(name, value)

    def forward(self, x):
        return linear(x, self.weight * self.the_mask)


class Named(nn.Module):
    """Layers of `add_module`, read by name."""

    def __init__(self):
        super().__init__()
        for i in range(3):
            self.add_module(f"layer_{i}", nn.Linear(4, 4))

    def forward(self, x):
        for i in range(3):
            x = getattr(self, f"layer_{i}")(x).tanh()
        return x


def summed(self, x):
    return self.last(x) + sum(self.many) + len(list(self.many.parameters()))


TRAINED = {
    "pytorch#11476, #13350: spectral norm": lambda: nn.Sequential(spectral_norm(nn.Linear(4, 4)), nn.ReLU()),
    "pytorch#7568, #8465: weight norm with a 0-dim norm": lambda: weight_norm(nn.Linear(4, 3), dim=None),
    "pytorch#14960: weight norm beside another layer": lambda: Call(
        lambda self, x: self.up(x[:, None]).sum(1) * self.scale,
        up=weight_norm(nn.ConvTranspose1d(1, 2, 1)),
        scale=nn.Parameter(torch.rand(4)),
    ),
    "transformer-xl#123: parameters in a list": lambda: Call(
        summed, last=nn.Linear(4, 3), many=nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(2)])
    ),
    "efficient_densenet_pytorch#36: a checkpointed closure": lambda: Call(
        densely, norm=nn.LayerNorm(8), conv=nn.Linear(8, 2), first=nn.Linear(4, 4)
    ),
    "cplxmodule#3: a mask by __setattr__": Masked,
    "allennlp#2780: layers by name": Named,
    "pytorch#22670: a sparse matrix": lambda: Call(
        lambda self, x: torch.sparse.mm(self.matrix, self.last(x).t()).t(),
        last=nn.Linear(4, 4),
        matrix=nn.Buffer(torch.eye(4)[:2].to_sparse()),
    ),
    "BS-RoFormer#25: windows on the device of a parameter": lambda: Call(in_windows, gain=nn.Parameter(torch.rand(1))),
}


@pytest.mark.parametrize("call", [lambda model, x: model(x), twice], ids=["once", "twice"])
@pytest.mark.parametrize("name", TRAINED)
def test_a_reported_module_trains_as_the_plain_one(name, call):
    x = torch.randn(8, 64 if "windows" in name else 4)
    results = []
    for is_wrapped in (False, True):
        torch.manual_seed(0)
        base = TRAINED[name]()
        model = wrap(base) if is_wrapped else base
        for _ in range(2):
            base.zero_grad()
            out = call(model, x.to(FIRST) if is_wrapped else x)
            out.square().sum().backward()
        results.append([out.detach(), *(parameter.grad for parameter in base.parameters()), *base.buffers()])
    assert_close(results[1], results[0])


WRITES = {
    "copy_": lambda buffer, value: buffer.copy_(value),
    ".data =": lambda buffer, value: setattr(buffer, "data", value),
    ".data.copy_": lambda buffer, value: buffer.data.copy_(value),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_codebook_of_moving_averages_keeps_the_first_lanes_updates(how):
    """vqvae#1, vector-quantize-pytorch#57."""

    def forward(self, x):
        z = self.encoder(x)
        chosen = one_hot(torch.cdist(z, self.codes).argmin(1), 5).float()
        out = self.codes[chosen.argmax(1)]
        if self.training:
            with torch.no_grad():
                counts = chosen.sum(0)[:, None]
                WRITES[how](
                    self.codes, torch.where(counts > 0, (self.codes + chosen.t() @ z) / (1 + counts), self.codes)
                )
        return z + (out - z).detach()

    base = Call(forward, encoder=nn.Linear(4, 4), codes=nn.Buffer(torch.randn(5, 4)))
    plain, wrapper = copy.deepcopy(base), wrap(base)
    for _ in range(3):
        x = torch.randn(8, 4)
        assert_close(wrapper(x.to(FIRST))[: 8 // LANES], plain(x[: 8 // LANES]))
        assert_close(base.codes, plain.codes)
