"""The GPT-2 layout with a tied head (Radford et al. 2019): `small`, `base` and `large` are GPT-2, GPT-2 medium and
GPT-2 large.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from dpbench.cases.names import UNITS, Data, Family, Size
from dpbench.workloads import digits
from dpbench.workloads.workload import Batch, Workload


@dataclass(frozen=True)
class TransformerSize:
    """`context` is the longest sequence, `sequence` the tokens in a random item."""

    layers: int
    width: int
    heads: int
    context: int
    sequence: int
    vocabulary: int


SIZES = {
    Size.TINY: TransformerSize(layers=2, width=32, heads=2, context=64, sequence=32, vocabulary=128),
    Size.SMALL: TransformerSize(layers=12, width=768, heads=12, context=1024, sequence=1024, vocabulary=50257),
    Size.BASE: TransformerSize(layers=24, width=1024, heads=16, context=1024, sequence=1024, vocabulary=50257),
    Size.LARGE: TransformerSize(layers=36, width=1280, heads=20, context=1024, sequence=1024, vocabulary=50257),
}


def workload(size: Size, data: Data) -> Workload:
    spec = SIZES[size]
    draw = _digits if data is Data.DIGITS else partial(_random, spec)
    return Workload(
        model=partial(GPT2, spec),
        batch=draw,
        loss=next_token_loss,
        optimizer=partial(SGD, lr=0.05),
        unit=UNITS[Family.TRANSFORMER],
    )


def next_token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """The mean cross entropy of logits, shape (batch, sequence, vocabulary), and tokens, shape (batch, sequence)."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=2)
        )
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """From tokens, shape (batch, sequence), to logits, shape (batch, sequence, vocabulary).

    Without dropout, so that a step is deterministic.
    """

    def __init__(self, size: TransformerSize) -> None:
        super().__init__()
        self.wte = nn.Embedding(size.vocabulary, size.width)
        self.wpe = nn.Embedding(size.context, size.width)
        self.h = nn.ModuleList(TransformerBlock(size.width, size.heads) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)
        self.lm_head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        self._initialise(size.layers)

    def _initialise(self, layers: int) -> None:
        """Standard deviations of 0.02, and 0.02 / sqrt(2 layers) for projections into the residual stream: section 2.3
        of the GPT-2 paper.
        """
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def _shift(tokens: Tensor) -> Batch:
    return Batch((tokens[:, :-1].contiguous(),), tokens[:, 1:].contiguous())


def _random(spec: TransformerSize, size: int, generator: torch.Generator) -> Batch:
    return _shift(torch.randint(spec.vocabulary, (size, spec.sequence + 1), generator=generator))


def _digits(size: int, generator: torch.Generator) -> Batch:
    images, _ = digits.draw(size, generator)
    return _shift(images.flatten(1))
