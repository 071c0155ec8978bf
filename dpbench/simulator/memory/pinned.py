"""Pinned host memory: which CPU storages are pinned, and the accesses of copies to each.

The host's own accesses are not seen, because operators on CPU tensors do not pass the simulator.
"""

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.simulator.memory.races import ShadowMemory
from dpbench.simulator.memory.regions import Region, region
from dpbench.simulator.streams import StreamOrder


@dataclass(frozen=True, slots=True)
class PinnedBlock:
    """The memory of one pinned storage."""

    shadow: ShadowMemory


@dataclass(frozen=True, slots=True)
class PinnedStorage:
    """One pinned storage, as a device's storage has it: with a `block`."""

    block: PinnedBlock


class PinnedTable:
    """The pinned storages that are alive."""

    def __init__(self, order: StreamOrder) -> None:
        self._order = order
        self._by_raw: dict[int, PinnedStorage] = {}

    def add(self, tensor: Tensor) -> None:
        """Note that the storage of a CPU tensor is pinned, until it dies."""
        raw = tensor.untyped_storage()
        self._by_raw[raw._cdata] = PinnedStorage(PinnedBlock(ShadowMemory(self._order)))
        weakref.finalize(raw, self._by_raw.pop, raw._cdata)

    def access(self, tensor: Tensor) -> tuple[PinnedStorage, Region] | None:
        """The bytes of a CPU tensor; None if it is not pinned."""
        storage = self._by_raw.get(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else None
        if storage is None:
            return None
        start = int(tensor.storage_offset()) * tensor.itemsize
        return storage, region(start, tuple(tensor.shape), tensor.stride(), tensor.itemsize)
