"""Timelines in the Trace Event Format, which Perfetto and chrome://tracing open.

The host and each device of a variant are a process each; each row is a thread. Times are whole nanoseconds in
microseconds, so rounding makes no spans overlap. A unit of a simulated trace is a millisecond.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from dpbench.trace.timeline import Source, Timeline, Trace

UNIT_S = 1e-3
"""The length of a unit of a simulated trace."""


def perfetto(trace: Trace) -> dict[str, Any]:
    """Return the object to write as JSON."""
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
