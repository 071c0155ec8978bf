"""A step as spans on rows, whatever its source.

A row is a thread of the host, a stream of a device, or a link. Spans of one row do not overlap::

    main thread          [issue][issue][issue]
    device 0, stream 1          [ op 1 ]....waits....[ op 2 ]
    link up 1                           [the gradients]
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Source(StrEnum):
    """Where a timeline is from. A simulated one has an order and no times."""

    RECORDED = "recorded"
    SIMULATED = "simulated"


class Doing(StrEnum):
    """What a span does: a host call, a computation, or bytes on their way."""

    HOST = "host"
    COMPUTE = "compute"
    MOVE = "move"


class Moved(StrEnum):
    """What a span of `Doing.MOVE` carries. `OUTPUT_GRADIENTS` are those of the lanes' outputs."""

    INPUTS = "inputs"
    PARAMETERS = "parameters"
    OUTPUTS = "outputs"
    OUTPUT_GRADIENTS = "output gradients"
    GRADIENTS = "gradients"
    BYTES = "bytes"


HOST_GROUP, LINK_GROUP = "host", "links"


@dataclass(frozen=True, slots=True)
class TraceRow:
    """`group` is `HOST_GROUP`, `LINK_GROUP` or a device, such as ``device 0``."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work on all of its `rows`, which are positions in `Timeline.rows`.

    `start` and `finish` are in seconds, or in units if the source is simulated. `before` are positions of the spans
    that it waited for. `device` is the device that computes; on CPU lanes, the thread that computes or moves data.
    `moved` and `lane` say what a move carries, and of which lane; a lane of None means all.
    """

    name: str
    doing: Doing
    rows: tuple[int, ...]
    start: float
    finish: float
    phase: str = ""
    device: str | None = None
    before: tuple[int, ...] = ()
    moved: Moved | None = None
    lane: int | None = None

    @property
    def length(self) -> float:
        return self.finish - self.start


@dataclass(frozen=True)
class Timeline:
    """The spans of a step. `devices` are all devices, also those without a span."""

    rows: Sequence[TraceRow]
    spans: Sequence[Span]
    devices: Sequence[str]

    @cached_property
    def path(self) -> list[int]:
        """The critical path: from the last finish back over the spans that ended last before, the first one first."""
        return walk_back([span.finish for span in self.spans], lambda i: self.spans[i].before)

    @cached_property
    def length(self) -> float:
        return max((span.finish for span in self.spans), default=0.0)


@dataclass(frozen=True)
class VariantTrace:
    """A variant's timeline, or the `reason` why there is none.

    `step_s` is the time of a step, None if the source has no times. It may differ from the timeline's length: `notes`
    say why.
    """

    variant: str
    timeline: Timeline | None
    step_s: float | None = None
    notes: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Trace:
    """The traces of several variants. `title` says of which workload, batch and devices."""

    source: Source
    title: str
    variants: Sequence[VariantTrace]
    notes: tuple[str, ...] = ()


def walk_back(finishes: Sequence[float], before: Callable[[int], Collection[int]]) -> list[int]:
    """Return the path from the last finish back, the first one first. Of those `before` each, the last one is on it."""
    at = max(range(len(finishes)), key=lambda i: finishes[i], default=None)
    path: list[int] = []
    while at is not None:
        path.append(at)
        at = max(before(at), key=lambda i: finishes[i], default=None)
    return path[::-1]


class RowNumbers:
    """The rows of a timeline while it is built, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[TraceRow, int] = {}

    def of(self, group: str, name: str) -> int:
        """Return the position of this row, new or not."""
        return self._numbers.setdefault(TraceRow(group, name), len(self._numbers))

    def rows(self) -> tuple[TraceRow, ...]:
        return tuple(self._numbers)


def sorted_rows(timeline: Timeline) -> list[int]:
    """Return the positions of the rows as they are drawn: host, devices, links. Threads are in order of first use."""
    places = {HOST_GROUP: -1, **{device: number for number, device in enumerate(timeline.devices)}}
    last = len(timeline.devices)

    def place(number: int) -> tuple[int, list[tuple[int, str]]]:
        row = timeline.rows[number]
        return places.get(row.group, last), [] if row.group == HOST_GROUP else natural(row.name)

    return sorted(range(len(timeline.rows)), key=place)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``stream 2`` before ``stream 10``."""
    words = name.replace(".", " ").split()
    return [(int(word), "") if word.isascii() and word.isdigit() else (-1, word) for word in words]
