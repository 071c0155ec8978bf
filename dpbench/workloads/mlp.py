"""Many small Linear and ReLU layers: launches bound the step time, not arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD

from dpbench.cases.names import UNITS, Data, Family, Size
from dpbench.workloads import digits
from dpbench.workloads.workload import Batch, Workload

FEATURES = digits.PIXELS
CLASSES = 10


@dataclass(frozen=True)
class MlpSize:
    """`layers` counts the Linear layers with the head."""

    layers: int
    width: int


# From small to large only the width grows: the same number of launches, each with 16 times the arithmetic.
SIZES = {
    Size.TINY: MlpSize(layers=8, width=16),
    Size.SMALL: MlpSize(layers=64, width=64),
    Size.BASE: MlpSize(layers=64, width=256),
    Size.LARGE: MlpSize(layers=64, width=1024),
}


def workload(size: Size, data: Data) -> Workload:
    spec = SIZES[size]
    # All identity layers change the output in the same direction, so the learning rate is divided among them.
    optimizer = partial(SGD, lr=0.64 / spec.layers)
    return Workload(
        model=partial(build, spec),
        batch=draw(data),
        loss=functional.cross_entropy,
        optimizer=optimizer,
        unit=UNITS[Family.MLP],
    )


def draw(data: Data) -> Callable[[int, torch.Generator], Batch]:
    """The function that draws features, shape (batch, 64), and labels, shape (batch,)."""
    return _digits if data is Data.DIGITS else _random


def build(size: MlpSize) -> nn.Sequential:
    """From features, shape (batch, 64), to logits, shape (batch, 10)."""
    widths = [FEATURES, *[size.width] * (size.layers - 1)]
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [_linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(size.width, CLASSES))


def _linear(n_in: int, n_out: int) -> nn.Linear:
    linear = nn.Linear(n_in, n_out)
    if n_in == n_out:
        # A plain stack of 64 layers learns only if it starts as the identity: Le, Jaitly and Hinton, arXiv:1504.00941.
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
    return linear


def _random(size: int, generator: torch.Generator) -> Batch:
    features = torch.randn(size, FEATURES, generator=generator)
    return Batch((features,), torch.randint(CLASSES, (size,), generator=generator))


def _digits(size: int, generator: torch.Generator) -> Batch:
    images, labels = digits.draw(size, generator)
    return Batch((images.flatten(1) / (digits.LEVELS - 1),), labels)
