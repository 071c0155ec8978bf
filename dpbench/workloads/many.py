"""Many small tensors, each in a module of its own: a cost that grows with their square shows here first."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from dpbench.cases.names import UNITS, Data, Family, Size
from dpbench.workloads import mlp
from dpbench.workloads.mlp import CLASSES, FEATURES
from dpbench.workloads.workload import Workload


@dataclass(frozen=True)
class ManySize:
    """Sizes in turn differ by a factor of 2 or 4, so that growth can be measured."""

    tensors: int


SIZES = {
    Size.TINY: ManySize(128),
    Size.SMALL: ManySize(256),
    Size.BASE: ManySize(1024),
    Size.LARGE: ManySize(2048),
}


def workload(size: Size, data: Data) -> Workload:
    return Workload(
        model=partial(ManyTensors, SIZES[size]),
        batch=mlp.draw(data),
        loss=functional.cross_entropy,
        optimizer=partial(SGD, lr=0.05, foreach=True),
        unit=UNITS[Family.MANY],
    )


class Offset(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(FEATURES))

    def forward(self) -> Tensor:
        return self.value


class ManyTensors(nn.Module):
    """From features, shape (batch, 64), to logits, shape (batch, 10)."""

    def __init__(self, size: ManySize) -> None:
        super().__init__()
        self.offsets = nn.ModuleList(Offset() for _ in range(size.tensors))
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        offset = torch.stack([module() for module in self.offsets]).mean(dim=0)
        return self.head(x + offset)
