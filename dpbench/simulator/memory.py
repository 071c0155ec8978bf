"""The simulated memory behind a CPU storage: one `Memory` for all tensors that share the storage."""

import weakref
from collections.abc import Callable

import torch

from dpbench.simulator.allocator import Block


class Memory:
    """Lives as long as a simulated tensor over `storage`, then calls `forget`. An empty storage has no block.

    `serial` is its identity: no other memory ever has it.
    """

    __slots__ = ("__weakref__", "_forget", "block", "device", "serial", "storage")

    def __init__(
        self,
        storage: torch.UntypedStorage,
        device: int,
        block: Block | None,
        *,
        serial: int,
        forget: Callable[["Memory"], None],
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


class Memories:
    """Finds the memory of a CPU tensor by its storage."""

    def __init__(self) -> None:
        self._by_storage: dict[int, weakref.ref[Memory]] = {}

    def find(self, storage: torch.UntypedStorage) -> Memory | None:
        known = self._by_storage.get(storage._cdata)
        return known() if known else None

    def add(self, memory: Memory) -> None:
        self._by_storage[memory.storage._cdata] = weakref.ref(memory)

    def remove(self, memory: Memory) -> None:
        """The storage is alive until its memory is gone, so the key is still its own."""
        self._by_storage.pop(memory.storage._cdata, None)
