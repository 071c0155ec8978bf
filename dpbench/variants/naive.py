"""The algorithm of `torch.nn.DataParallel` in plain Python, for any kind of device.

    scatter          here                 send a chunk of the batch to each lane's device
    replicate        naive_replicate.py   build all replicas anew; one autograd node broadcasts the parameters ...
                     naive_broadcast.py   ... and its backward sums the gradients into the base, in messages of 10 MiB
    parallel_apply   naive_apply.py       run each replica in a new thread
    gather           here                 concatenate the outputs on the first device

All of this happens in every forward. `scatter` and `gather` are differentiable.

Replica 0 shares the base's storage. If its forward writes to a buffer in place, as batch norm does, the base keeps
the result. The other replicas hold copies, and what they write is lost. If each lane has a device of its own, the
messages and bytes are those of the stock wrapper in torch/nn/parallel/*.py.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.variants.naive_apply import parallel_apply
from dpbench.variants.naive_replicate import replicate
from dpbench.variants.variant import Variant


def scatter(inputs: Sequence[Tensor], devices: Sequence[torch.device]) -> list[tuple[Tensor, ...]]:
    """Return each lane's inputs, on its device.

    A chunk has ceil(batch / lanes) items, so the last lanes may get none and are left out. A chunk that is already on
    its device is a view.
    """
    parts = [
        [chunk.to(device, non_blocking=True) for chunk, device in zip(x.chunk(len(devices)), devices, strict=False)]
        for x in inputs
    ]
    return list(zip(*parts, strict=True))


def gather(outputs: Sequence[Any], device: torch.device) -> Any:
    """Return the lanes' outputs concatenated on `device`.

    The first output defines the structure: dicts, lists, tuples and named tuples are gathered member by member.
    0-dim tensors become a vector with one item for each lane.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat([x.reshape(x.shape or 1).to(device) for x in outputs])
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([x[key] for x in outputs], device)) for key in first)
    members = (gather(member, device) for member in zip(*outputs, strict=True))
    return first._make(members) if hasattr(first, "_make") else type(first)(members)


class Naive:
    """The scheme `naive`. Its four steps have the stock wrapper's names and can be overridden."""

    scatter = staticmethod(scatter)
    replicate = staticmethod(replicate)
    parallel_apply = staticmethod(parallel_apply)
    gather = staticmethod(gather)

    def __init__(self, base: nn.Module, devices: list[torch.device]) -> None:
        self._base, self._devices = base, devices

    def __call__(self, *inputs: Tensor) -> Any:
        chunks = self.scatter(inputs, self._devices)
        if len(self._devices) == 1:
            return self._base(*chunks[0])
        lanes = self._devices[: len(chunks)]
        replicas = self.replicate(self._base, lanes)
        outputs = self.parallel_apply(replicas, chunks, lanes)
        return self.gather(outputs, self._devices[0])


NAIVE = Variant(Naive)
