"""Which address a tensor gets: blocks cut from segments, freed ones handed out again, as CUDA does.

A freed block goes back to the pool of the stream it was allocated on, and the next fitting request of that stream gets
it at once, in stream order. A block that `record_stream` told of another stream is held back until that stream's work,
as of the free, is over. Sizes, thresholds and the best fit are those of c10/cuda/CUDACachingAllocator.cpp:
round up to 512 bytes; requests of up to 1 MiB come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger
ones from a segment of their own in steps of 2 MiB; a rest of 512 bytes (small pool) or over 1 MiB (large) is split off.
The device's memory never ends: there is no out-of-memory here.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from dpbench.simulator.races import ShadowMemory
from dpbench.simulator.streams import StreamOrder, VectorClock

_MIB = 1 << 20
_ROUND = 512
_SMALL_LIMIT = _MIB
_SMALL_SEGMENT, _LARGE_SEGMENT, _SEGMENT_STEP = 2 * _MIB, 20 * _MIB, 2 * _MIB
_OWN_SEGMENT = 10 * _MIB


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """Adjacent bytes of one segment, allocated on `stream`; `shadow` is the history of the whole segment."""

    address: int
    size: int
    stream: int
    is_small: bool
    shadow: ShadowMemory
    is_free: bool = False
    before: "MemoryBlock | None" = None
    after: "MemoryBlock | None" = None
    other_streams: set[int] = field(default_factory=set)


class Allocator:
    """The memory of one device; `base` is its first address."""

    def __init__(self, base: int, order: StreamOrder) -> None:
        self._order = order
        self._top = base
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        self._blocks: dict[int, MemoryBlock] = {}
        self._held: list[tuple[MemoryBlock, VectorClock]] = []
        self._waits_seen = 0
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.reserved_bytes = 0

    def allocate(self, size: int, stream: int) -> MemoryBlock:
        """A block of at least `size` bytes, for use on `stream`."""
        self._release_finished()
        rounded = max(_ROUND, -(-size // _ROUND) * _ROUND)
        block = self._best_fit(rounded, stream) or self._new_segment(rounded, stream)
        self._split(block, rounded)
        self.allocated_bytes += block.size
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return block

    def free(self, block: MemoryBlock) -> None:
        """Give the block back; it may be handed out again at once."""
        self.allocated_bytes -= block.size
        if block.other_streams:
            clock = {stream: self._order.now(stream).get(stream, 0) for stream in block.other_streams}
            block.other_streams = set()
            self._held.append((block, clock))
            self._waits_seen = -1
        else:
            self._return(block)

    def _release_finished(self) -> None:
        if self._waits_seen == self._order.waits:
            return
        self._waits_seen = self._order.waits
        held, self._held = self._held, []
        for block, clock in held:
            if self._order.is_over(clock, block.stream):
                self._return(block)
            else:
                self._held.append((block, clock))

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
        """Put into its pool, as one with its free neighbours."""
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
