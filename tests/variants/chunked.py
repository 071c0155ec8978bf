"""The oracle: the plain module run chunk by chunk, one loss, one backward, gradients summed in the base."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.sweep.names import Data
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
    """A workload, its model in float64 so that the order of sums hardly shows, and a batch to go with it."""
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
    """Buffers are those that the first chunk leaves; `model` itself stays as it is."""
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
