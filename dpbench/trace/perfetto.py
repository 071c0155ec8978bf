"""Timelines in the Trace Event Format, which Perfetto and chrome://tracing open.

The host, each device and the links of a variant are a process each; each row is a thread. Times are whole nanoseconds
in microseconds, so rounding makes no spans overlap. A unit of a simulated trace is a millisecond.
"""

from collections.abc import Iterator
from typing import Any

from dpbench.trace.critical import waits
from dpbench.trace.timeline import Source, Timeline, Trace, sorted_rows

UNIT_S = 1e-3
"""The length of a unit of a simulated trace."""


def perfetto(trace: Trace) -> dict[str, Any]:
    """Return the object to write as JSON."""
    seconds = UNIT_S if trace.source is Source.SIMULATED else 1.0
    events: list[dict[str, Any]] = []
    first = 1
    for variant in trace.variants:
        if variant.timeline is not None:
            numbers = _Numbers(variant.timeline, first)
            first = numbers.next
            events += numbers.names(f"{variant.variant} ({trace.source})")
            events += _spans(variant.timeline, numbers, seconds)
    about = {"title": trace.title, "source": str(trace.source), "notes": list(_notes(trace))}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _notes(trace: Trace) -> Iterator[str]:
    if trace.source is Source.SIMULATED:
        yield "Simulated: an order without times. Each operator and copy takes one unit, drawn as 1 ms."
    yield from trace.notes
    for variant in trace.variants:
        yield from (f"{variant.variant}: {note}" for note in (*variant.notes, *filter(None, [variant.reason])))


class _Numbers:
    """The number of the process and of the thread of each row. `next` is the first free process."""

    def __init__(self, timeline: Timeline, first: int) -> None:
        self._timeline = timeline
        self._order = sorted_rows(timeline)
        groups = list(dict.fromkeys(timeline.rows[row].group for row in self._order))
        self._process = {group: first + place for place, group in enumerate(groups)}
        self._thread = {row: place + 1 for place, row in enumerate(self._order)}
        self.next = first + len(groups)

    def of(self, row: int) -> dict[str, int]:
        return {"pid": self._process[self._timeline.rows[row].group], "tid": self._thread[row]}

    def names(self, variant: str) -> Iterator[dict[str, Any]]:
        for group, process in self._process.items():
            yield _about("process_name", {"pid": process}, name=f"{variant}: {group}")
            yield _about("process_sort_index", {"pid": process}, sort_index=process)
        for row in self._order:
            yield _about("thread_name", self.of(row), name=self._timeline.rows[row].name)
            yield _about("thread_sort_index", self.of(row), sort_index=self._thread[row])


def _about(what: str, numbers: dict[str, int], **args: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": what, **numbers, "args": args}


def _spans(timeline: Timeline, numbers: _Numbers, seconds: float) -> Iterator[dict[str, Any]]:
    on_path = set(timeline.path)
    for i, span in enumerate(timeline.spans):
        args: dict[str, Any] = {"doing": str(span.doing), "critical": i in on_path}
        if span.moved is not None:
            args |= {"moved": str(span.moved)} | ({} if span.lane is None else {"lane": span.lane})
        for row in span.rows:
            times = _times(span.start * seconds, span.finish * seconds)
            yield {"ph": "X", "name": span.name, "cat": span.phase or "step", **numbers.of(row), **times, "args": args}
    for wait in waits(timeline):
        times = _times(wait.start * seconds, wait.finish * seconds)
        name = f"waits for {timeline.spans[wait.cause].name}"
        yield {"ph": "X", "name": name, "cat": "wait", **numbers.of(wait.row), **times, "args": {"doing": "wait"}}


def _times(start_s: float, finish_s: float) -> dict[str, float]:
    start_ns, finish_ns = round(start_s * 1e9), round(finish_s * 1e9)
    return {"ts": start_ns / 1000, "dur": (finish_ns - start_ns) / 1000}
