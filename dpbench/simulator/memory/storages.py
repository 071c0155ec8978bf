"""Simulated storages: the device memory behind each CPU storage."""

import weakref
from collections.abc import Callable

import torch

from dpbench.simulator.memory.allocator import MemoryBlock


class SimStorage:
    """An empty storage has no `block`. It lives as long as a simulated tensor over `raw`, and then calls `forget`.

    `serial` is never used again.
    """

    __slots__ = ("__weakref__", "_forget", "block", "device", "raw", "serial")

    def __init__(
        self,
        raw: torch.UntypedStorage,
        device: int,
        block: MemoryBlock | None,
        *,
        serial: int,
        forget: Callable[["SimStorage"], None],
    ) -> None:
        self.raw = raw
        self.device = device
        self.block = block
        self.serial = serial
        self._forget = forget

    @property
    def address(self) -> int:
        """0 for an empty storage, as in torch."""
        return self.block.address if self.block else 0

    @property
    def use_count(self) -> int:
        """How many tensors hold the storage, in Python or in a graph, without `self.raw`."""
        return torch._C._storage_Use_Count(self.raw._cdata) - 1

    def keep_for(self, stream: int) -> None:
        """``Tensor.record_stream``."""
        if self.block and self.block.stream != stream:
            self.block.other_streams.add(stream)

    def __del__(self) -> None:
        self._forget(self)


class StorageTable:
    def __init__(self) -> None:
        self._by_raw: dict[int, weakref.ref[SimStorage]] = {}

    def find(self, raw: torch.UntypedStorage) -> SimStorage | None:
        storage = self._by_raw.get(raw._cdata)
        return storage() if storage else None

    def add(self, storage: SimStorage) -> None:
        self._by_raw[storage.raw._cdata] = weakref.ref(storage)

    def remove(self, storage: SimStorage) -> None:
        """Its CPU storage is still alive, so no other one has its key."""
        self._by_raw.pop(storage.raw._cdata, None)
