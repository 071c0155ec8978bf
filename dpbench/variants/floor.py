"""The base run on each chunk in turn, on the first device: the work of all lanes and no scheme around it.

No scheme on lanes that share a device can beat it. Batch norm's running statistics see every chunk here,
where a data-parallel scheme keeps those of the first; the gradients are the same.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dpbench.variants.base import Forward, Variant
from dpbench.variants.scatter_gather import gather, scatter


def wrap(base: nn.Module, devices: list[torch.device]) -> Forward:
    first = devices[0]

    def forward(*inputs: Tensor) -> Any:
        return gather([base(*chunk) for chunk in scatter(inputs, [first] * len(devices))], first)

    return forward


FLOOR = Variant(wrap, concurrent_lanes=False)
