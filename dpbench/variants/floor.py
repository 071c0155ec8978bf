"""The base run on each chunk in turn, on the first device: the work of all lanes and no scheme around it.

No scheme on lanes that share a device can beat it. Batch norm's running statistics see every chunk here,
where a data-parallel scheme keeps those of the first; the gradients are the same.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dpbench.variants.naive import gather, scatter
from dpbench.variants.variant import Variant


class Floor:
    """Its steps have the names that the stock wrapper's have."""

    scatter = staticmethod(scatter)
    gather = staticmethod(gather)

    def __init__(self, base: nn.Module, devices: list[torch.device]) -> None:
        self._base, self._devices = base, devices

    def __call__(self, *inputs: Tensor) -> Any:
        first = self._devices[0]
        chunks = self.scatter(inputs, [first] * len(self._devices))
        return self.gather(self.parallel_apply(chunks), first)

    def parallel_apply(self, chunks: list[tuple[Tensor, ...]]) -> list[Any]:
        """Not parallel at all: each chunk in turn."""
        return [self._base(*chunk) for chunk in chunks]


FLOOR = Variant(Floor, concurrent_lanes=False)
