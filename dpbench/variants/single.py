"""The whole batch at once on the first device: what data parallelism is meant to beat."""

from typing import Any

import torch
from torch import Tensor, nn

from dpbench.variants.base import Forward, Variant


def wrap(base: nn.Module, devices: list[torch.device]) -> Forward:
    def forward(*inputs: Tensor) -> Any:
        return base(*(x.to(devices[0], non_blocking=True) for x in inputs))

    return forward


SINGLE = Variant(wrap, concurrent_lanes=False)
