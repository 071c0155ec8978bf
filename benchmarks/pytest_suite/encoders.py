"""Workloads of 24 encoder layers, for the benchmarks that count messages."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from dpbench.workloads.workload import Batch, Workload

LAYERS = 24
TOKENS = 2


def small() -> Workload:
    """16 wide."""
    return _workload(width=16, feed=32)


def wide() -> Workload:
    """512 wide."""
    return _workload(width=512, feed=2048)


def _workload(width: int, feed: int) -> Workload:
    return Workload(model=partial(_encoder, width, feed), batch=partial(_random, width), loss=functional.mse_loss)


def _encoder(width: int, feed: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(width, 2, feed, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)


def _random(width: int, size: int, generator: torch.Generator) -> Batch:
    tokens, target = torch.randn(2, size, TOKENS, width, generator=generator)
    return Batch((tokens,), target)
