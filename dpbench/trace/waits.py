"""Where rows wait and devices idle, and what runs at the same time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpbench.trace.timeline import HOST_GROUP, Doing, Span, Timeline

Stretch = tuple[float, float]
"""A start and a finish."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gap in a row: from the end of one span to the start of the next, which waited for the span `cause`."""

    row: int
    start: float
    finish: float
    cause: int


def binding(spans: Sequence[Span], i: int) -> int | None:
    """Return the span of those before span i that ended last; None if there is none."""
    return max(spans[i].before, key=lambda earlier: spans[earlier].finish, default=None)


def waits(timeline: Timeline) -> list[Waiting]:
    """Return the gaps between the spans of each thread, and of each stream that computes.

    A stream also waits for its first span, but a thread only starts with it. A link or a stream for copies that
    carries nothing waits for nothing. Before a span that waited for nothing, or for its own row, there is no gap.
    """
    spans = timeline.spans
    computes = {row for span in spans if span.doing is Doing.COMPUTE for row in span.rows}
    threads = {number for number, row in enumerate(timeline.rows) if row.group == HOST_GROUP}
    ends = [0.0 if number in computes else float("inf") for number in range(len(timeline.rows))]
    found = []
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].start, spans[i].finish)):
        cause = binding(spans, i)
        for row in spans[i].rows:
            if cause is not None and spans[i].start > ends[row] and row not in spans[cause].rows:
                found.append(Waiting(row, ends[row], spans[i].start, cause))
            if row in computes or row in threads:
                ends[row] = spans[i].finish
    return found


def union(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Return the same time as stretches that do not touch, in order."""
    found: list[Stretch] = []
    for start, finish in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], finish)
        elif finish > start:
            found.append((start, finish))
    return found


def total(stretches: Iterable[Stretch]) -> float:
    """Return the sum of the lengths."""
    return sum(finish - start for start, finish in stretches)


def in_both(one: Sequence[Stretch], other: Sequence[Stretch]) -> list[Stretch]:
    """Return the time that is in both. Each must come from `union`."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, finish = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if start < finish:
            found.append((start, finish))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def computing(timeline: Timeline, device: str) -> list[Stretch]:
    """Return when a device computes."""
    return union((s.start, s.finish) for s in timeline.spans if s.doing is Doing.COMPUTE and s.device == device)


def idle_shares(timeline: Timeline) -> dict[str, float]:
    """Return for each device the share of the timeline in which it does not compute."""
    length = timeline.length or 1.0
    return {device: 1 - total(computing(timeline, device)) / length for device in timeline.devices}


def overlapped_share(timeline: Timeline) -> float | None:
    """Return the share of the communication's time in which a device computes, as the mean over the devices.

    It is None if nothing is sent.
    """
    moving = union((s.start, s.finish) for s in timeline.spans if s.doing is Doing.MOVE)
    if not moving or not timeline.devices:
        return None
    shares = [total(in_both(moving, computing(timeline, device))) / total(moving) for device in timeline.devices]
    return sum(shares) / len(shares)
