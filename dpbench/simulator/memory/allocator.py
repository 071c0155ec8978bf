"""Simulated caching allocator: the address of each tensor, and the reuse of freed blocks.

A freed block returns to the pool of the stream it was allocated on. If `record_stream` named another stream, the free
records an event on that stream. The block is held back until its own stream has waited for the event, or
`HELD_LAUNCHES` launches later. This hides no race: only the uses of this block that the event covers are forgotten.

Sizes, thresholds and the best fit are those of c10/cuda/CUDACachingAllocator.cpp.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpbench.simulator.memory.races import ShadowMemory, Use
from dpbench.simulator.memory.regions import Region
from dpbench.simulator.streams import StreamOrder, VectorClock

_MIB = 1 << 20
_ROUND = 512
_SMALL_LIMIT = _MIB
_SMALL_SEGMENT = 2 * _MIB
_LARGE_SEGMENT = 20 * _MIB
_SEGMENT_STEP = 2 * _MIB
_OWN_SEGMENT = 10 * _MIB
HELD_LAUNCHES = 4096
"""On CUDA the host is about 1,000 ahead of a stream."""


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """`shadow` holds the accesses to the whole segment; `before` and `after` are the neighbours in it.

    `other_streams` are those named by `record_stream`.
    """

    address: int
    size: int
    stream: int
    is_small: bool
    shadow: ShadowMemory
    is_free: bool = False
    before: "MemoryBlock | None" = None
    after: "MemoryBlock | None" = None
    other_streams: set[int] = field(default_factory=set)

    @property
    def region(self) -> Region:
        return Region(self.address, self.address + self.size)


@dataclass(frozen=True, slots=True)
class _Held:
    """A freed block that waits for `events`, at most until launch number `last`."""

    block: MemoryBlock
    events: Sequence[VectorClock]
    last: int


class Allocator:
    def __init__(self, base: int, order: StreamOrder) -> None:
        self._order = order
        self._top = base
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        self._blocks: dict[int, MemoryBlock] = {}
        self._held: dict[int, list[_Held]] = {}
        self._in_use: dict[tuple[int, bool], list[Use]] = {}
        self._waits_seen: dict[int, int] = {}
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.reserved_bytes = 0

    def allocate(self, size: int, stream: int) -> MemoryBlock:
        self._release_finished(stream)
        rounded = max(_ROUND, -(-size // _ROUND) * _ROUND)
        block = self._best_fit(rounded, stream) or self._new_segment(rounded, stream)
        self._split(block, rounded)
        self.allocated_bytes += block.size
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return block

    def free(self, block: MemoryBlock) -> None:
        self.allocated_bytes -= block.size
        events = [self._order.now(stream) for stream in block.other_streams]
        block.other_streams = set()
        self._note_uses(block, events)
        if events:
            self._held.setdefault(block.stream, []).append(_Held(block, events, self._order.launches + HELD_LAUNCHES))
            self._waits_seen.pop(block.stream, None)
        else:
            self._return(block)

    def use_after_free(self, size: int, stream: int) -> Use | None:
        """A use, possibly still running, of free memory that `stream` may get for `size` bytes.

        Each freed block of the pool counts: with other sizes or earlier requests it would be the best fit.
        """
        pool = stream, size <= _SMALL_LIMIT
        if pool not in self._in_use:
            return None
        uses = [use for use in self._in_use[pool] if not self._order.precedes(use[0].stream, use[0].event, stream)]
        self._in_use[pool] = uses
        return uses[0] if uses else None

    def _note_uses(self, block: MemoryBlock, events: Sequence[VectorClock]) -> None:
        uses = block.shadow.unordered(block.region, block.stream)
        uses = [use for use in uses if not use[0].is_in(events)]
        if uses:
            self._in_use.setdefault((block.stream, block.is_small), []).extend(uses)

    def _release_finished(self, stream: int) -> None:
        held, launches = self._held.get(stream), self._order.launches
        if not held or (self._waits_seen.get(stream) == self._order.waits and held[0].last > launches):
            return
        self._waits_seen[stream] = self._order.waits
        self._held[stream] = []
        for freed in held:
            if all(self._order.is_over(event, stream) for event in freed.events):
                self._return(freed.block)
            elif freed.last <= launches:
                freed.block.shadow.forget(freed.block.region, freed.events)
                self._return(freed.block)
            else:
                self._held[stream].append(freed)

    def _best_fit(self, size: int, stream: int) -> MemoryBlock | None:
        pool = self._free.get((stream, size <= _SMALL_LIMIT), [])
        at = bisect_left(pool, (size, 0))
        if at == len(pool):
            return None
        block = self._blocks[pool.pop(at)[1]]
        block.is_free = False
        return block

    def _new_segment(self, size: int, stream: int) -> MemoryBlock:
        if size <= _SMALL_LIMIT:
            length = _SMALL_SEGMENT
        elif size < _OWN_SEGMENT:
            length = _LARGE_SEGMENT
        else:
            length = -(-size // _SEGMENT_STEP) * _SEGMENT_STEP
        block = MemoryBlock(self._top, length, stream, size <= _SMALL_LIMIT, ShadowMemory(self._order))
        self._blocks[block.address] = block
        self._top += length
        self.reserved_bytes += length
        return block

    def _split(self, block: MemoryBlock, size: int) -> None:
        rest = block.size - size
        if rest < _ROUND or (not block.is_small and rest <= _SMALL_LIMIT):
            return
        tail = MemoryBlock(block.address + size, rest, block.stream, block.is_small, block.shadow, before=block)
        tail.after, block.after, block.size = block.after, tail, size
        if tail.after:
            tail.after.before = tail
        self._blocks[tail.address] = tail
        self._return(tail)

    def _return(self, block: MemoryBlock) -> None:
        if block.before and block.before.is_free:
            block = self._merge(self._withdraw(block.before), block)
        if block.after and block.after.is_free:
            block = self._merge(block, self._withdraw(block.after))
        block.is_free = True
        insort(self._free.setdefault((block.stream, block.is_small), []), (block.size, block.address))

    def _withdraw(self, block: MemoryBlock) -> MemoryBlock:
        pool = self._free[block.stream, block.is_small]
        del pool[bisect_left(pool, (block.size, block.address))]
        return block

    def _merge(self, left: MemoryBlock, right: MemoryBlock) -> MemoryBlock:
        left.size += right.size
        left.after = right.after
        if left.after:
            left.after.before = left
        del self._blocks[right.address]
        return left
