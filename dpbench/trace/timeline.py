"""A step as spans on rows, whatever its source.

A row is a thread of the host or a stream of a device. Spans of one row do not overlap::

    main thread          [issue][issue][issue]
    device 0, stream 1          [ op 1 ]....waits....[ op 2 ]
    device 0, stream 2                  [ gradients ]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple


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


class Row(NamedTuple):
    """`group` is `HOST` or one of the timeline's devices, such as ``device 0``."""

    group: str
    name: str


HOST = "host"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work.

    `start` and `finish` are in seconds, or in units if the source is simulated. `before` are positions of the spans
    that it waited for. `device` is the device that computes; on CPU lanes, the thread that computes or moves data.
    `moved` and `lane` say what a move carries, and of which lane; a lane of None means all.
    """

    name: str
    doing: Doing
    row: Row
    start: float
    finish: float
    phase: str = ""
    device: str | None = None
    before: tuple[int, ...] = ()
    moved: Moved | None = None
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A gap in a row, from the end of one span to the start of the next, which waited for the span `cause`."""

    row: Row
    start: float
    finish: float
    cause: int


@dataclass(frozen=True)
class Timeline:
    """The spans of a step. `devices` are all devices, also those without a span."""

    spans: Sequence[Span]
    devices: Sequence[str]

    @cached_property
    def rows(self) -> list[Row]:
        """The rows as they are drawn: the host, then the devices, each in the order of first use."""
        groups = (HOST, *self.devices)
        return sorted(dict.fromkeys(span.row for span in self.spans), key=lambda row: groups.index(row.group))

    @cached_property
    def length(self) -> float:
        return max((span.finish for span in self.spans), default=0.0)

    @cached_property
    def path(self) -> list[int]:
        """The critical path: from the last finish back over the cause of each span, the first one first."""
        path: list[int] = []
        at = self._last(range(len(self.spans)))
        while at is not None:
            path.append(at)
            at = self._last(self.spans[at].before)
        return path[::-1]

    def _last(self, positions: Sequence[int]) -> int | None:
        """Return the span that ends last, None for no spans."""
        return max(positions, key=lambda i: self.spans[i].finish, default=None)

    def waits(self) -> list[Wait]:
        """Return the gaps between the spans of each thread, and of each stream that computes.

        A stream also waits for its first span, but a thread only starts with it. A stream for copies that carries
        nothing waits for nothing. Before a span that waited for nothing, or for its own row, there is no gap.
        """
        computes = {span.row for span in self.spans if span.doing is Doing.COMPUTE}
        ends = dict.fromkeys(computes, 0.0)
        waits = []
        for span in sorted(self.spans, key=lambda span: (span.start, span.finish)):
            cause, end = self._last(span.before), ends.get(span.row, span.start)
            if cause is not None and span.start > end and span.row != self.spans[cause].row:
                waits.append(Wait(span.row, end, span.start, cause))
            if span.row in computes or span.row.group == HOST:
                ends[span.row] = span.finish
        return waits


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
