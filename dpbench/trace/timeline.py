"""A step as spans on rows, whatever its source.

A row is a thread of the host or a stream of a device. Spans of one row do not overlap::

    main thread          [issue][issue][issue]
    device 0, stream 1          [ op 1 ]....waits....[ op 2 ]
    device 0, stream 2                  [ gradients ]

`perfetto` gives them in the Trace Event Format. Times are whole nanoseconds in microseconds, so rounding makes no spans
overlap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple


class Source(StrEnum):
    """A simulated timeline has an order and no times."""

    RECORDED = "recorded"
    SIMULATED = "simulated"


class Doing(StrEnum):
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


class TimelineRow(NamedTuple):
    """`group` is `HOST` or one of the timeline's devices, such as ``device 0``."""

    group: str
    name: str


HOST = "host"


@dataclass(frozen=True, slots=True)
class Span:
    """`start` and `finish` are in seconds, or in units if the source is simulated.

    `before` are positions of the spans that it waited for. `device` computes; on CPU lanes it is the thread that
    computes or moves data. `moved` and `lane` say what a move carries, and of which lane; a lane of None means all.
    """

    name: str
    doing: Doing
    row: TimelineRow
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

    row: TimelineRow
    start: float
    finish: float
    cause: int


@dataclass(frozen=True)
class Timeline:
    """`devices` are all devices, also those without a span."""

    spans: Sequence[Span]
    devices: Sequence[str]

    @cached_property
    def rows(self) -> list[TimelineRow]:
        """The host, then the devices, in the order of first use."""
        groups = (HOST, *self.devices)
        return sorted(dict.fromkeys(span.row for span in self.spans), key=lambda row: groups.index(row.group))

    @cached_property
    def length(self) -> float:
        return max((span.finish for span in self.spans), default=0.0)

    @cached_property
    def path(self) -> list[int]:
        """Forwards: from the last finish back over the cause of each span."""
        path: list[int] = []
        at = self._last(range(len(self.spans)))
        while at is not None:
            path.append(at)
            at = self._last(self.spans[at].before)
        return path[::-1]

    def _last(self, positions: Sequence[int]) -> int | None:
        return max(positions, key=lambda i: self.spans[i].finish, default=None)

    def waits(self) -> list[Wait]:
        """The gaps between the spans of each thread, and of each stream that computes.

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

    `step_s` is None if the source has no times. `notes` say why it may differ from the timeline's length.
    """

    variant: str
    timeline: Timeline | None
    step_s: float | None = None
    notes: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Trace:
    """`title` says of which workload, batch and devices."""

    source: Source
    title: str
    variants: Sequence[VariantTrace]


UNIT_S = 1e-3
"""The length of a unit of a simulated trace."""


def perfetto(trace: Trace) -> dict[str, Any]:
    unit_s = UNIT_S if trace.source is Source.SIMULATED else 1.0
    notes = ["An order without times: each operator and copy takes one unit, drawn as 1 ms."] * (unit_s == UNIT_S)
    events: list[dict[str, Any]] = []
    processes = count(1)
    for variant in trace.variants:
        notes += [f"{variant.variant}: {note}" for note in (*variant.notes, *filter(None, [variant.reason]))]
        if variant.timeline is not None:
            events += _events(variant.timeline, f"{variant.variant} ({trace.source})", processes, unit_s)
    about = {"title": trace.title, "source": str(trace.source), "notes": notes}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _events(timeline: Timeline, variant: str, processes: Iterator[int], unit_s: float) -> Iterator[dict[str, Any]]:
    process = {group: next(processes) for group in dict.fromkeys(row.group for row in timeline.rows)}
    for group, number in process.items():
        yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{variant}: {group}"}}
    threads = {row: {"pid": process[row.group], "tid": place} for place, row in enumerate(timeline.rows, start=1)}
    for row, thread in threads.items():
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": row.name}}
        yield {"ph": "M", "name": "thread_sort_index", **thread, "args": {"sort_index": thread["tid"]}}
    on_path = set(timeline.path)
    for i, span in enumerate(timeline.spans):
        args = {"doing": span.doing, "critical": i in on_path, "moved": span.moved, "lane": span.lane}
        args = {name: value for name, value in args.items() if value is not None}
        times = _times(span.start * unit_s, span.finish * unit_s)
        yield {"ph": "X", "name": span.name, "cat": span.phase or "step", **threads[span.row], **times, "args": args}
    for wait in timeline.waits():
        name, times = f"waits for {timeline.spans[wait.cause].name}", _times(wait.start * unit_s, wait.finish * unit_s)
        yield {"ph": "X", "name": name, "cat": "wait", **threads[wait.row], **times, "args": {"doing": "wait"}}


def _times(start_s: float, finish_s: float) -> dict[str, float]:
    start_ns, finish_ns = round(start_s * 1e9), round(finish_s * 1e9)
    return {"ts": start_ns / 1000, "dur": (finish_ns - start_ns) / 1000}
