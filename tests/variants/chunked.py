"""The expected step: the plain module on each chunk, then one loss and one backward.

The gradients of the chunks add up in the base.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.cases.names import Data
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Batch, Workload

CPU = torch.device("cpu")


@dataclass
class Step:
    output: Tensor
    loss: Tensor
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]


def make(name: str, batch: int, seed: int = 0) -> tuple[Workload, nn.Module, Batch]:
    """Return a workload, its model in float64, and a batch.

    In float64 the order of sums hardly matters.
    """
    workload = resolve(name, Data.RANDOM)
    torch.manual_seed(seed)
    model = workload.model().double()
    drawn = workload.batch(batch, torch.Generator().manual_seed(seed))
    inputs = tuple(x.double() if x.is_floating_point() else x for x in drawn.inputs)
    return workload, model, Batch(inputs, drawn.target)


def finish(workload: Workload, base: nn.Module, output: Any, target: Tensor) -> Step:
    loss = workload.loss(output, target)
    loss.backward()
    gradients = {name: p.grad.to_dense() for name, p in base.named_parameters() if p.grad is not None}
    return Step(output.detach(), loss.detach(), gradients, dict(base.named_buffers()))


def chunked(workload: Workload, model: nn.Module, batch: Batch, lanes: int) -> Step:
    """Return the expected step, with the buffers as the first chunk leaves them.

    `model` itself does not change.
    """
    base = copy.deepcopy(model)
    buffers: dict[str, Tensor] = {}
    outputs = []
    for chunk in zip(*(x.chunk(lanes) for x in batch.inputs), strict=True):
        outputs.append(base(*chunk))
        buffers = buffers or {name: b.clone() for name, b in base.named_buffers()}
    step = finish(workload, base, torch.cat(outputs), batch.target)
    step.buffers = buffers
    return step


def assert_same(actual: Step, expected: Step, *, buffers: bool = True) -> None:
    torch.testing.assert_close(actual.output, expected.output)
    torch.testing.assert_close(actual.loss, expected.loss)
    torch.testing.assert_close(actual.gradients, expected.gradients)
    if buffers:
        torch.testing.assert_close(actual.buffers, expected.buffers)
