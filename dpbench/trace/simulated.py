"""A simulated step as a timeline: its operators and copies in their order, and what each copy moves."""

import re
from collections.abc import Iterable

from dpbench.records.count_record import Phase
from dpbench.records.recording import Copy, Mark, Operator, Recording
from dpbench.trace.timeline import Doing, Moved, Span, Timeline, TimelineRow

HOME = 0
"""The base's device: it gathers the outputs and sums the gradients."""
_TO_THE_HOST = re.compile(r"copy (\d+) to host")


def simulated_timeline(recording: Recording) -> Timeline:
    """Spans have one unit each."""
    spans, places, rows, phase = list[Span](), dict[int, int](), dict[int, TimelineRow](), ""
    order = recording.order()
    for event in recording.events:
        if isinstance(event, Mark):
            phase = event.name
        elif isinstance(event, Operator | Copy) and event.id in order:
            before = tuple(sorted({places[earlier] for earlier in order[event.id]}))
            times = (start := max((spans[i].finish for i in before), default=0.0)), start + 1
            row = rows.setdefault(event.stream, _next_row(recording.streams[event.stream], rows))
            places[event.id] = len(spans)
            if isinstance(event, Copy):
                source, destination = ("host" if end is None else end for end in (event.source, event.destination))
                staged = staged_from(spans[i].name for i in before)
                moved = moved_by(phase, event.source, event.destination, staged)
                name = f"copy {source} to {destination}"
                spans.append(Span(name, Doing.MOVE, row, *times, phase, None, before, *moved))
            else:
                spans.append(Span(event.name, Doing.COMPUTE, row, *times, phase, row.group, before))
    return Timeline(spans, [f"device {number}" for number in sorted(set(recording.streams.values()))])


def _next_row(device: int, rows: dict[int, TimelineRow]) -> TimelineRow:
    """Streams are numbered from 1 in the order of first use."""
    group = f"device {device}"
    return TimelineRow(group, f"stream {1 + sum(row.group == group for row in rows.values())}")


def staged_from(before: Iterable[str]) -> int | None:
    """The device of the last copy to the host among the names of what a copy waited for; None without one.

    Route "host" sends a piece from a device to the host, and from there to others. Names are in the order of issue.
    """
    return next((int(copy[1]) for copy in map(_TO_THE_HOST.fullmatch, reversed(list(before))) if copy), None)


def moved_by(
    phase: str, source: int | None, destination: int | None, staged: int | None = None
) -> tuple[Moved, int | None]:
    """What a copy carries, and the lane that it belongs to; a lane of None means all.

    An end of None is the host. A copy from the host passes on what the device `staged` sent there, or inputs if that is
    None. In a chain, parameters and gradients belong to the lane at the far end of the copy.
    """
    if source is None and staged != destination:
        source = staged
    if source is None:
        return Moved.INPUTS, destination
    if destination is None:
        if phase == Phase.BACKWARD:
            return Moved.GRADIENTS, source
        return (Moved.PARAMETERS, None) if source == HOME else (Moved.OUTPUTS, source)
    if phase == Phase.BACKWARD:
        return (Moved.OUTPUT_GRADIENTS, destination) if source == HOME else (Moved.GRADIENTS, source)
    return (Moved.OUTPUTS, source) if destination == HOME else (Moved.PARAMETERS, destination)
