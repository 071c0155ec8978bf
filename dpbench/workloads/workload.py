"""The interface of a workload: a model, its batches, its loss and its optimizer."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer


class WorkloadError(ValueError):
    """One line on a workload or variant that cannot be used."""


@dataclass(frozen=True)
class Batch:
    """`inputs` are forward's positional arguments; these and `target` have the batch as dimension 0."""

    inputs: tuple[Tensor, ...]
    target: Tensor


def _sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.01)


@dataclass(frozen=True)
class Workload:
    """Tensors are made on the CPU in float32.

    `model()` returns a new module; dpbench seeds torch before it. `batch(size, generator)` draws one batch.
    `loss(output, target)` returns a 0-dim mean over the batch items. `unit` names a batch item in the output.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int, torch.Generator], Batch]
    loss: Callable[[Any, Tensor], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = field(default=_sgd)
    unit: str = "items"
