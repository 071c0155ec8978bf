"""The stock algorithm of `torch.nn.DataParallel`, to be read and to run on any devices.

Every forward: cut the batch into chunks, rebuild every replica, start a thread for each, concatenate.

    chunks    scatter_gather.py    a chunk of the batch to each lane's device
    replicas  naive_replicate.py   all replicas built anew, parameters handed out by one autograd node ...
              naive_broadcast.py   ... whose backward sums the gradients into the base, in messages of 10 MiB
    outputs   naive_apply.py       a new thread for each replica
    output    scatter_gather.py    concatenated on the first device

Replica 0 shares the base's storage, so what its forward writes in place to a buffer, batch norm's running
statistics for one, stays; the other replicas hold copies, which are dropped. On devices of their own its
messages and bytes are those of the stock wrapper, whose steps stand in torch/nn/parallel/*.py.
"""
# MERGED-DOC variants.scatter_gather: """A batch in chunks, one for each lane, and the lanes' outputs in one piece again; both differentiable."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.variants.naive_apply import parallel_apply
from dpbench.variants.naive_replicate import replicate
from dpbench.variants.variant import Variant


def scatter(inputs: Sequence[Tensor], devices: Sequence[torch.device]) -> list[tuple[Tensor, ...]]:
    """Each lane's inputs on its device: chunks of ceil(batch / lanes) items, so the last lanes may get none.

    A chunk that is on its device already is a view.
    """
    parts = [
        [chunk.to(device, non_blocking=True) for chunk, device in zip(x.chunk(len(devices)), devices, strict=False)]
        for x in inputs
    ]
    return list(zip(*parts, strict=True))


def gather(outputs: Sequence[Any], device: torch.device) -> Any:
    """The lanes' outputs concatenated on `device`, tensor by tensor through dicts, lists and (named) tuples.

    The first output decides on the structure; 0-dim tensors become a vector with one item for each lane.
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
    """Its four steps have the names that the stock wrapper's have, and are overridable as those are."""

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
