"""Large embedding tables and a small MLP, as in recommender models: a step uses few of the parameters."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from dpbench.cases.names import UNITS, Data, Family, Size
from dpbench.workloads import digits
from dpbench.workloads.workload import Batch, Workload

LOOKUPS = digits.PIXELS
"""Rows that one batch item looks up, in all tables together."""
HIDDEN = 64
CLASSES = 10


@dataclass(frozen=True)
class EmbeddingSize:
    """`tables` of `rows` x `width`; an item averages ``LOOKUPS / tables`` rows of each."""

    tables: int
    rows: int
    width: int


SIZES = {
    Size.TINY: EmbeddingSize(tables=4, rows=2_000, width=16),
    Size.SMALL: EmbeddingSize(tables=4, rows=50_000, width=32),
    Size.BASE: EmbeddingSize(tables=8, rows=200_000, width=64),
    Size.LARGE: EmbeddingSize(tables=16, rows=500_000, width=64),
}


def workload(size: Size, data: Data, *, sparse: bool) -> Workload:
    """Sparse gradients hold the rows that a step used, dense ones all rows."""
    spec = SIZES[size]
    draw = partial(_digits if data is Data.DIGITS else _random, spec)
    return Workload(
        model=partial(EmbeddingModel, spec, sparse),
        batch=draw,
        loss=functional.cross_entropy,
        optimizer=partial(SGD, lr=0.5),
        unit=UNITS[Family.EMBEDDING],
    )


class EmbeddingModel(nn.Module):
    """From row numbers, shape (batch, tables, lookups), to logits, shape (batch, 10)."""

    def __init__(self, size: EmbeddingSize, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(size.rows, size.width, mode="mean", sparse=sparse) for _ in range(size.tables)
        )
        self.mlp = nn.Sequential(nn.Linear(size.tables * size.width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    def forward(self, rows: Tensor) -> Tensor:
        bags = [table(ids) for table, ids in zip(self.tables, rows.unbind(1), strict=True)]
        return self.mlp(torch.cat(bags, dim=1))


def _per_table(spec: EmbeddingSize, rows: Tensor) -> Tensor:
    return rows.unflatten(1, (spec.tables, -1))


def _random(spec: EmbeddingSize, size: int, generator: torch.Generator) -> Batch:
    rows = torch.randint(spec.rows, (size, LOOKUPS), generator=generator)
    return Batch((_per_table(spec, rows),), torch.randint(CLASSES, (size,), generator=generator))


def _digits(spec: EmbeddingSize, size: int, generator: torch.Generator) -> Batch:
    """A row number for each pair of pixel position and grey value: 64 x 17 rows."""
    images, labels = digits.draw(size, generator)
    rows = torch.arange(digits.PIXELS) * digits.LEVELS + images.flatten(1)
    return Batch((_per_table(spec, rows),), labels)
