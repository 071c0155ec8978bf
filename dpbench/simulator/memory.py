"""The simulated memory behind a CPU storage: one `Memory` for all tensors that share the storage."""

import weakref
from typing import TYPE_CHECKING

import torch

from dpbench.simulator.allocator import Block

if TYPE_CHECKING:
    from dpbench.simulator.machine import Machine


class Memory:
    """Lives as long as a simulated tensor over `storage`; its end frees the block."""

    __slots__ = ("__weakref__", "_machine", "block", "device", "serial", "storage")

    def __init__(self, machine: "Machine", storage: torch.UntypedStorage, device: int, stream: int) -> None:
        self._machine = machine
        self.storage = storage
        self.device = device
        self.serial = machine.next_serial()
        self.block: Block | None = None
        if storage.nbytes():
            self.block = machine.allocate(device, stream, storage.nbytes())

    @property
    def address(self) -> int:
        """Of the first byte; 0 for an empty storage, as torch has it."""
        return self.block.address if self.block else 0

    @property
    def holders(self) -> int:
        """How many tensors hold the storage, alive in Python or in a graph: its use count without our own handle."""
        return torch._C._storage_Use_Count(self.storage._cdata) - 1

    def __del__(self) -> None:
        self._machine.forget(self)


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
