"""Route "host": through pinned memory of the host, for devices that do not reach each other's memory.

A *slot* is pinned memory for one piece of a bucket. In forward, lane 0 sends each piece once. Then all devices fetch
it at the same time, each over its own link::

    base      hub: pack     near 1: piece ──> slot ─┬─> far 1
                                                    ├─> far 2
                                                    └─> far 3

In backward gradients go along a chain. Each hop has slots of its own, so that all links are busy at the same time::

    lane 3    far 3: piece ──> slot ──> above 3      far 2: add, piece ──> slot ──> above 2      far 1: add ...

The devices add, and the host waits for nothing. To add on the host, the host would have to wait for each piece, or CUDA
to call Python from a stream.

A slot is written again after all streams that fetch from it have passed their events.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.devices import CPU
from dpbench.parallel.flat import FlatCopy, cut
from dpbench.parallel.lanes import Lane, Stream, record_event, use_stream, wait_event

SLOTS = 4
"""Pieces that are in the host's memory at the same time, on the way to the lanes or on one hop back."""


@dataclass(slots=True)
class Slot:
    """Pinned memory, and the events after which it has been read. `memory` grows to the largest piece."""

    memory: Tensor | None = None
    leaving: list[Any] = field(default_factory=list)

    def reserve(self, byte_count: int, device: torch.device) -> Tensor:
        """The first `byte_count` bytes. The allocator of pinned memory keeps a block that copies still use."""
        if self.memory is None or len(self.memory) < byte_count:
            memory = torch.empty(byte_count, dtype=torch.uint8, device=CPU)
            self.memory = memory if device == CPU else memory.pin_memory()
        return self.memory[:byte_count]


@dataclass(frozen=True, slots=True)
class HeldPiece:
    """A piece in a slot after the event `written`. Each reader adds an event to `leaving`."""

    values: Tensor
    written: Any
    leaving: list[Any]


class SlotRing:
    """Slots that are used in turn. Producer: the stream of `put`. Consumers: the streams that read its pieces."""

    def __init__(self) -> None:
        self._slots = [Slot() for _ in range(SLOTS)]
        self._next = 0

    def put(self, piece: Tensor, device: torch.device, stream: Stream) -> HeldPiece:
        """Copy a piece of that device to the next slot, on the stream, which must be current."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % SLOTS
        for event in slot.leaving:
            wait_event(stream, event)
        slot.leaving = []
        values = slot.reserve(piece.nbytes, device).view(piece.dtype)
        values.copy_(piece, non_blocking=True)
        return HeldPiece(values, record_event(device, stream), slot.leaving)


class HostRoute:
    """The slots of one set of replicas: those to all lanes, and those of each hop back.

    A ring needs no lock, because it has one writer: a forward has its set alone, and torch's engine runs all sums of a
    device in one thread.
    """

    def __init__(self) -> None:
        self._to_all = SlotRing()
        self._back: defaultdict[int, SlotRing] = defaultdict(SlotRing)

    def send(self, packed: Tensor, up: Stream, base: Lane, receivers: Sequence[tuple[FlatCopy, Lane]]) -> None:
        """Copy a packed bucket to all receivers. The stream `up` on the base's device sends it to the host."""
        for copy, lane in receivers:
            with use_stream(lane.device, lane.far):
                copy.prepare(len(packed), lane)
        pieces = cut(packed)
        for place, piece in enumerate(pieces):
            with use_stream(base.device, up):
                held = self._to_all.put(piece, base.device, up)
            for copy, lane in receivers:
                with use_stream(lane.device, lane.far):
                    wait_event(lane.far, held.written)
                    copy.receive(cut(copy.flat)[place], held.values, lane, is_last=piece is pieces[-1])
                    held.leaving.append(record_event(lane.device, lane.far))

    def send_back(self, number: int, piece: Tensor, lane: Lane, parent: Lane) -> Tensor:
        """A copy of a lane's piece on its parent's device. The far stream and the stream above must be current."""
        held = self._back[number].put(piece, lane.device, lane.far)
        wait_event(lane.above, held.written)
        copied = held.values.to(parent.device, non_blocking=True, copy=True)
        held.leaving.append(record_event(parent.device, lane.above))
        return copied
