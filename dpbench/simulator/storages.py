"""The simulated storage behind a CPU storage: one `SimStorage` for all tensors that share the storage."""

import weakref
from collections.abc import Callable

import torch

from dpbench.simulator.allocator import MemoryBlock


class SimStorage:
    """Lives as long as a simulated tensor over `storage`, then calls `forget`. An empty storage has no block.

    `serial` is its identity: no other storage ever has it.
    """

    __slots__ = ("__weakref__", "_forget", "block", "device", "serial", "storage")

    def __init__(
        self,
        storage: torch.UntypedStorage,
        device: int,
        block: MemoryBlock | None,
        *,
        serial: int,
        forget: Callable[["SimStorage"], None],
    ) -> None:
        self.storage = storage
        self.device = device
        self.block = block
        self.serial = serial
        self._forget = forget

    @property
    def address(self) -> int:
        """Of the first byte; 0 for an empty storage, as torch has it."""
        return self.block.address if self.block else 0

    @property
    def holders(self) -> int:
        """How many tensors hold the storage, alive in Python or in a graph: its use count without our own handle."""
        return torch._C._storage_Use_Count(self.storage._cdata) - 1

    def keep_for(self, stream: int) -> None:
        """As ``Tensor.record_stream``: `stream` uses it too."""
        if self.block and self.block.stream != stream:
            self.block.other_streams.add(stream)

    def __del__(self) -> None:
        self._forget(self)


class StorageTable:
    """Finds the storage of a CPU tensor by its storage."""

    def __init__(self) -> None:
        self._by_storage: dict[int, weakref.ref[SimStorage]] = {}

    def find(self, storage: torch.UntypedStorage) -> SimStorage | None:
        known = self._by_storage.get(storage._cdata)
        return known() if known else None

    def add(self, storage: SimStorage) -> None:
        self._by_storage[storage.storage._cdata] = weakref.ref(storage)

    def remove(self, storage: SimStorage) -> None:
        """The storage is alive until its storage is gone, so the key is still its own."""
        self._by_storage.pop(storage.storage._cdata, None)
