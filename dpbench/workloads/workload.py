"""What a workload is: a model, its batches, its loss and its optimiser."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer


class WorkloadError(ValueError):
    """A workload that cannot be had: one line naming the field, its value and what is allowed."""


@dataclass(frozen=True)
class Batch:
    """`inputs` are the positional arguments of forward, each with the batch as dimension 0; `target` too."""

    inputs: tuple[Tensor, ...]
    target: Tensor


def _sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.01)


@dataclass(frozen=True)
class Workload:
    """Everything a step needs, made on the CPU in float32.

    `model()` builds a fresh module; the caller seeds torch before. `batch(size, generator)` draws one
    batch. `loss(output, target)` is a 0-dim mean over the batch items. `unit` is what one batch item is.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    loss: Callable[[Any, Tensor], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = field(default=_sgd)
    unit: str = "items"
