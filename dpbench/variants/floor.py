"""Floor: run the base on each chunk in turn, on the first device.

This is the work of all lanes without any scheme: no scheme can be faster if the lanes share a device. The running
statistics of batch norm differ from a scheme's: they see every chunk, not the first alone.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dpbench.variants.naive import gather, scatter
from dpbench.variants.variant import Variant


class Floor:
    scatter = staticmethod(scatter)
    gather = staticmethod(gather)

    def __init__(self, base: nn.Module, devices: list[torch.device]) -> None:
        self._base, self._devices = base, devices

    def __call__(self, *inputs: Tensor) -> Any:
        first = self._devices[0]
        chunks = self.scatter(inputs, [first] * len(self._devices))
        return self.gather(self.parallel_apply(chunks), first)

    def parallel_apply(self, chunks: list[tuple[Tensor, ...]]) -> list[Any]:
        return [self._base(*chunk) for chunk in chunks]


FLOOR = Variant(Floor, concurrent_lanes=False)
