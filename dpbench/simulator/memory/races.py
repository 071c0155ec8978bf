"""Find races: two accesses to the same bytes, one of them a write, that no wait orders.

The shadow memory of a segment holds for every byte the last write, and the reads since then. Dense accesses are stored
in disjoint cells, found by bisection. Strided accesses are stored in a list::

    cells      [0 ──── 512) [512 ─────────── 2048) [2048 ── 4096)     each: its last write, the reads since
    strided    columns 0..3 of a matrix, columns 4..7, ...

A write without a race replaces all earlier accesses that it covers.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dpbench.simulator.memory.regions import Region
from dpbench.simulator.streams import StreamOrder, VectorClock


class RaceError(RuntimeError):
    """The text names two accesses and their source lines."""


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """`event` is the id of the operation's event, and its tick; `line` is the source line that called it."""

    operator: str
    stream: int
    stream_name: str
    event: int
    line: str

    def __str__(self) -> str:
        return f"{self.operator} on {self.stream_name} at {self.line}"

    def is_in(self, clocks: Iterable[VectorClock]) -> bool:
        """Whether the operation has finished when all of `clocks` have."""
        return any(clock.get(self.stream, 0) >= self.event for clock in clocks)


Use = tuple[Launch, bool]
"""An access to memory, and whether it writes."""


@dataclass(slots=True)
class _Cell:
    start: int
    stop: int
    write: Launch | None = None
    reads: dict[int, Launch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Strided:
    region: Region
    launch: Launch
    is_write: bool


class ShadowMemory:
    def __init__(self, order: StreamOrder) -> None:
        self._order = order
        self._starts: list[int] = []
        self._cells: list[_Cell] = []
        self._strided: list[_Strided] = []

    def read(self, region: Region, launch: Launch) -> set[int]:
        """Return the ids of the events that wrote these bytes last. Raise RaceError."""
        writers = set()
        cells = self._touched(region)
        for cell in cells:
            if cell.write is not None:
                self._check("write-read", cell.write, launch)
                writers.add(cell.write.event)
            if region.runs is None:
                cell.reads[launch.stream] = launch
        for past in self._strided:
            if past.is_write and past.region.overlaps(region):
                self._check("write-read", past.launch, launch)
                if _is_last(past, cells):
                    writers.add(past.launch.event)
        if region.runs is not None:
            self._remember(_Strided(region, launch, is_write=False))
        return writers

    def write(self, region: Region, launch: Launch) -> None:
        """Raise RaceError."""
        for cell in self._touched(region):
            if cell.write is not None:
                self._check("write-write", cell.write, launch)
            for past in cell.reads.values():
                self._check("read-write", past, launch)
        for strided in self._strided:
            if not self._is_before(strided.launch, launch) and strided.region.overlaps(region):
                self._check("write-write" if strided.is_write else "read-write", strided.launch, launch)
        if region.runs is None:
            self._replace(region, launch)
        else:
            self._remember(_Strided(region, launch, is_write=True))

    def unordered(self, region: Region, stream: int) -> list[Use]:
        """Accesses to these bytes that may still run when the next operation of `stream` does."""
        uses = [(launch, False) for cell in self._between(region.start, region.stop) for launch in cell.reads.values()]
        uses += [(cell.write, True) for cell in self._between(region.start, region.stop) if cell.write is not None]
        uses += [(past.launch, past.is_write) for past in self._strided if past.region.overlaps(region)]
        return [use for use in uses if not self._order.precedes(use[0].stream, use[0].event, stream)]

    def forget(self, region: Region, clocks: Sequence[VectorClock]) -> None:
        """Drop the accesses to these bytes alone that have finished when all of `clocks` have."""
        cells = self._split(region.start, region.stop)
        for cell in cells:
            cell.reads = {stream: launch for stream, launch in cell.reads.items() if not launch.is_in(clocks)}
            if cell.write is not None and cell.write.is_in(clocks):
                cell.write = None
        self._put(cells, [cell for cell in cells if cell.reads or cell.write])
        self._strided = [
            past for past in self._strided if not (_is_inside(past.region, region) and past.launch.is_in(clocks))
        ]

    def _is_before(self, earlier: Launch, later: Launch) -> bool:
        return self._order.precedes(earlier.stream, earlier.event, later.stream)

    def _check(self, kind: str, earlier: Launch, later: Launch) -> None:
        if not self._is_before(earlier, later):
            raise RaceError(
                f"{kind} race: {later} is not ordered after {earlier}; "
                f"{later.stream_name} must wait for {earlier.stream_name}, or record_stream must keep the memory"
            )

    def _touched(self, region: Region) -> list[_Cell]:
        if region.start >= region.stop:
            return []
        if region.runs is None:
            return self._split(region.start, region.stop)
        cells = self._between(region.start, region.stop)
        return [cell for cell in cells if Region(cell.start, cell.stop).overlaps(region)]

    def _between(self, start: int, stop: int) -> list[_Cell]:
        first = max(bisect_right(self._starts, start) - 1, 0)
        if first < len(self._cells) and self._cells[first].stop <= start:
            first += 1
        return self._cells[first : bisect_right(self._starts, stop - 1)]

    def _split(self, start: int, stop: int) -> list[_Cell]:
        """Cut the cells, fill the gaps; return those inside."""
        cells = self._between(start, stop)
        if len(cells) == 1 and cells[0].start == start and cells[0].stop == stop:
            return cells
        pieces: list[_Cell] = []
        end = start
        for cell in cells:
            if end < cell.start:
                pieces.append(_Cell(end, cell.start))
            pieces += _cut(cell, start, stop)
            end = cell.stop
        if end < stop:
            pieces.append(_Cell(end, stop))
        self._put(cells, pieces)
        return [piece for piece in pieces if start <= piece.start and piece.stop <= stop]

    def _put(self, old: list[_Cell], new: list[_Cell]) -> None:
        at = bisect_right(self._starts, (old or new)[0].start - 1)
        self._cells[at : at + len(old)] = new
        self._starts[at : at + len(old)] = [cell.start for cell in new]

    def _replace(self, region: Region, launch: Launch) -> None:
        if region.start >= region.stop:
            return
        self._put(self._between(region.start, region.stop), [_Cell(region.start, region.stop, launch)])
        self._strided = [past for past in self._strided if not _is_inside(past.region, region)]

    def _remember(self, access: _Strided) -> None:
        self._strided = [
            past
            for past in self._strided
            if past.region != access.region
            or not (access.is_write or (not past.is_write and past.launch.stream == access.launch.stream))
        ]
        self._strided.append(access)


def _is_inside(inner: Region, outer: Region) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _is_last(strided: _Strided, cells: list[_Cell]) -> bool:
    """Whether a byte of a strided write has had no dense write since."""
    return any(
        (cell.write is None or cell.write.event < strided.launch.event)
        and Region(cell.start, cell.stop).overlaps(strided.region)
        for cell in cells
    )


def _cut(cell: _Cell, start: int, stop: int) -> list[_Cell]:
    cuts = [cell.start, *(at for at in (start, stop) if cell.start < at < cell.stop), cell.stop]
    return [_Cell(a, b, cell.write, dict(cell.reads)) for a, b in itertools.pairwise(cuts)]
