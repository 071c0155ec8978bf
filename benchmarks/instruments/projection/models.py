"""The models of the published rows, as workloads: ResNet, ResNeXt, GPT-2 and a multilayer perceptron.

The optimizers go over the parameters in a loop, as torch did before 1.9. Attention is two matrix products and a
softmax, as in those years.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from dpbench.cases.names import Data, Size
from dpbench.workloads import convnet
from dpbench.workloads.workload import Batch, Workload

GROUPS = 32
_momentum = partial(SGD, lr=0.001, momentum=0.9, weight_decay=1e-4, foreach=False)


def resnet50() -> Workload:
    """With momentum and weight decay."""
    return _convnet(Size.BASE, _momentum)


def resnet50_plain() -> Workload:
    """With plain SGD."""
    return _convnet(Size.BASE, partial(SGD, lr=0.1, foreach=False))


def resnet101() -> Workload:
    return _convnet(Size.LARGE, _momentum)


def resnext50_32x4d() -> Workload:
    return _resnext(Size.BASE, group_width=4)


def resnext101_32x8d() -> Workload:
    return _resnext(Size.LARGE, group_width=8)


def _convnet(size: Size, optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]) -> Workload:
    return replace(convnet.workload(size, Data.RANDOM), optimizer=optimizer)


def _resnext(size: Size, group_width: int) -> Workload:
    return replace(_convnet(size, _momentum), model=partial(_resnext_model, size, group_width))


def _resnext_model(size: Size, group_width: int) -> nn.Module:
    """ResNet with grouped 3x3 convolutions (Xie et al., arXiv:1611.05431), as torchvision has them."""
    model = convnet.ResNet(convnet.SIZES[size])
    for block in model.modules():
        if isinstance(block, convnet.Bottleneck):
            n_in, base = block.conv1.in_channels, block.conv1.out_channels
            width = base * group_width * GROUPS // 64
            block.conv1, block.bn1 = nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width)
            stride = block.conv2.stride
            block.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=GROUPS, bias=False)
            block.bn2 = nn.BatchNorm2d(width)
            block.conv3 = nn.Conv2d(width, base * convnet.EXPANSION, 1, bias=False)
    return model


def mlp_4096() -> Workload:
    """4096 to 4096 to 2048."""
    return Workload(
        model=partial(_mlp, 4096, 4096, 2048),
        batch=partial(_vectors, 4096, 2048),
        loss=functional.mse_loss,
        optimizer=partial(SGD, lr=0.01, foreach=False),
        unit="vectors",
    )


def _mlp(n_in: int, hidden: int, n_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, n_out))


def _vectors(n_in: int, n_out: int, size: int, generator: torch.Generator) -> Batch:
    return Batch((torch.randn(size, n_in, generator=generator),), torch.randn(size, n_out, generator=generator))


@dataclass(frozen=True)
class Gpt2Size:
    """`returns_all`: forward returns the logits and all keys and values beside the loss, so a gather sends them too."""

    layers: int
    width: int
    heads: int
    returns_all: bool
    tokens: int = 1024
    vocabulary: int = 50257
    dropout: float = 0.1


def gpt2() -> Workload:
    """124 M parameters, as in the Trainer of Hugging Face transformers 4.3."""
    return _gpt2(Gpt2Size(layers=12, width=768, heads=12, returns_all=True))


def gpt2_large() -> Workload:
    """774 M parameters."""
    return _gpt2(Gpt2Size(layers=36, width=1280, heads=20, returns_all=False))


def _gpt2(size: Gpt2Size) -> Workload:
    return Workload(
        model=partial(Gpt2, size),
        batch=partial(_tokens, size),
        loss=_mean_loss,
        optimizer=partial(ClippedAdamW, lr=5e-5, weight_decay=0.0, foreach=False),
        unit="sequences",
    )


def _tokens(size: Gpt2Size, items: int, generator: torch.Generator) -> Batch:
    ids = torch.randint(size.vocabulary, (items, size.tokens), generator=generator)
    return Batch((ids, torch.ones(items, size.tokens), ids.clone()), torch.zeros(items))


def _mean_loss(output: tuple[Tensor, ...], _: Tensor) -> Tensor:
    return output[0].mean()


class ClippedAdamW(AdamW):
    """AdamW behind a limit on the norm of all gradients, as in the Trainer."""

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        parameters = [p for group in self.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        super().step(closure)


class Attention(nn.Module):
    """Takes (batch, tokens, width), returns the same shape, and keys and values of shape (2, batch, ...)."""

    def __init__(self, size: Gpt2Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.c_attn = nn.Linear(size.width, 3 * size.width)
        self.c_proj = nn.Linear(size.width, size.width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(size.dropout), nn.Dropout(size.dropout)
        causal = torch.ones(1, 1, size.tokens, size.tokens, dtype=torch.uint8).tril()
        self.register_buffer("causal", causal)
        self.register_buffer("masked", torch.tensor(-1e4))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, width = x.shape
        parts = self.c_attn(x).split(width, dim=2)
        query, key, value = (part.view(batch, tokens, self.heads, -1).permute(0, 2, 1, 3) for part in parts)
        weights = query.matmul(key.transpose(-2, -1)) / float(value.shape[-1]) ** 0.5
        weights = torch.where(self.causal.bool(), weights, self.masked) + mask
        weights = self.attn_dropout(functional.softmax(weights, dim=-1))
        joined = weights.matmul(value).permute(0, 2, 1, 3).contiguous().view(batch, tokens, width)
        return self.resid_dropout(self.c_proj(joined)), key, value


class FeedForward(nn.Module):
    """Takes and returns (batch, tokens, width)."""

    def __init__(self, size: Gpt2Size) -> None:
        super().__init__()
        self.c_fc = nn.Linear(size.width, 4 * size.width)
        self.c_proj = nn.Linear(4 * size.width, size.width)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(_gelu(self.c_fc(x))))


def _gelu(x: Tensor) -> Tensor:
    """OpenAI's GELU, an operator for each term, as transformers 4.3 has it."""
    return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))


class Layer(nn.Module):
    def __init__(self, size: Gpt2Size) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(size.width), Attention(size)
        self.ln_2, self.mlp = nn.LayerNorm(size.width), FeedForward(size)
        self.returns_all = size.returns_all

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        attended, key, value = self.attn(self.ln_1(x), mask)
        x = x + attended
        past = torch.stack((key, value)) if self.returns_all else None
        return x + self.mlp(self.ln_2(x)), past


class Gpt2(nn.Module):
    """Takes tokens, their mask and labels, each (batch, tokens). Returns the loss of shape (1,), and more if asked."""

    def __init__(self, size: Gpt2Size) -> None:
        super().__init__()
        self.size = size
        self.wte, self.wpe = nn.Embedding(size.vocabulary, size.width), nn.Embedding(size.tokens, size.width)
        self.drop = nn.Dropout(size.dropout)
        self.h = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width)

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        positions = torch.arange(self.size.tokens, device=ids.device).unsqueeze(0)
        x = self.drop(self.wte(ids) + self.wpe(positions))
        hidden_from = (1.0 - mask[:, None, None, :]) * -10000.0
        kept = []
        for layer in self.h:
            x, past = layer(x, hidden_from)
            kept += [] if past is None else [past]
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        predicted = logits[..., :-1, :].contiguous().view(-1, self.size.vocabulary)
        loss = functional.cross_entropy(predicted, labels[..., 1:].contiguous().view(-1)).unsqueeze(0)
        return (loss, logits, *kept) if self.size.returns_all else (loss,)
