"""Waits and idle devices, and the critical path in words, such as ``device 0 waits 14 ms for the gradients of lane 3``.

Spans of the path that do the same are one part, wherever they are on the path::

    path    [issue][issue]         [  gradients of 3 ][  gradients of 2 ]
                          [ op 0 ]                                       [ op 0 ]
    parts   the host issues the forward; device 0 computes; device 0 waits for the gradients of lanes 2 and 3
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpbench.trace.timeline import HOST_GROUP, Doing, Moved, Span, Timeline

Stretch = tuple[float, float]
"""A start and a finish."""

_LEAST_SHARE = 0.03
_MOSTLY = 0.9
HOST, REPLICATE = "the host", "replicate"
"""REPLICATE is the name of the host's span that makes replicas."""


@dataclass(frozen=True)
class PathPart:
    """Spans of the critical path that do the same. `length` is their sum, and `share` is that of the whole path.

    `who` computes, issues or waits; with `is_own` it moves the data itself. `moved` and `lanes` say what is moved.
    `waited` is the part of `length` in which a device that waits computes nothing. `doing` is None for time in which
    nothing was recorded. `is_replicating` is True for the host's making of replicas.
    """

    doing: Doing | None
    who: str
    phase: str
    length: float
    share: float
    waited: float
    moved: Moved | None = None
    lanes: tuple[int, ...] = ()
    is_own: bool = False
    is_replicating: bool = False


@dataclass(frozen=True)
class _Key:
    doing: Doing | None
    who: str
    phase: str
    moved: Moved | None = None
    is_own: bool = False
    is_replicating: bool = False


def parts_of_path(timeline: Timeline) -> list[PathPart]:
    """Return the parts in the order of their first span. Their lengths add up to the timeline's length."""
    stretches: dict[_Key, list[Stretch]] = {}
    lanes: dict[_Key, set[int]] = {}
    spans = timeline.spans
    end = 0.0
    waiters = _waiters([spans[i] for i in timeline.path])
    for place, i in enumerate(timeline.path):
        span = spans[i]
        if span.start > end:
            stretches.setdefault(_Key(None, HOST, span.phase), []).append((end, span.start))
        # In a profile the next span may start before this one ends: a kernel, before its launch has returned.
        end = min([span.finish, *(spans[later].start for later in timeline.path[place + 1 : place + 2])])
        key = _key(span, waiters[place])
        stretches.setdefault(key, []).append((span.start, end))
        if span.lane is not None:
            lanes.setdefault(key, set()).add(span.lane)
    length = timeline.length or 1.0
    return [
        PathPart(
            doing=key.doing,
            who=key.who,
            phase=key.phase,
            length=total(found),
            share=total(found) / length,
            waited=_waited(timeline, key.who, found),
            moved=key.moved,
            lanes=tuple(sorted(lanes.get(key, ()))),
            is_own=key.is_own,
            is_replicating=key.is_replicating,
        )
        for key, found in stretches.items()
    ]


def _waiters(path: Sequence[Span]) -> list[str]:
    """Return for each span of the path who waits for it: the device of the next span that is no move, or the host."""
    found, waiter = [], HOST
    for span in reversed(path):
        found.append(waiter)
        if span.doing is not Doing.MOVE:
            waiter = span.device or HOST
    return found[::-1]


def _key(span: Span, waiter: str) -> _Key:
    """Return what a span of the path does. What it sends is for the waiter."""
    if span.doing is Doing.COMPUTE:
        return _Key(span.doing, span.device or HOST, span.phase)
    if span.doing is Doing.HOST:
        return _Key(span.doing, HOST, span.phase, is_replicating=span.name == REPLICATE)
    if span.device is not None:
        return _Key(span.doing, span.device, span.phase, span.moved or Moved.BYTES, is_own=True)
    return _Key(span.doing, waiter, span.phase, span.moved or Moved.BYTES)


def _waited(timeline: Timeline, who: str, stretches: list[Stretch]) -> float:
    return (
        total(stretches) - total(in_both(union(stretches), computing(timeline, who)))
        if who != HOST
        else total(stretches)
    )


def path_in_words(timeline: Timeline, shown: Callable[[float], str]) -> list[str]:
    """Return a clause for each part of the critical path. `shown` makes a text of a time.

    Parts of less than three percent are one clause at the end.
    """
    parts = parts_of_path(timeline)
    large = [part for part in parts if part.share >= _LEAST_SHARE]
    clauses = [_clause(part, shown) for part in large]
    rest = sum(part.length for part in parts) - sum(part.length for part in large)
    if len(large) < len(parts) and rest > 0:
        clauses.append(f"smaller parts take {shown(rest)}")
    return clauses


def _clause(part: PathPart, shown: Callable[[float], str]) -> str:
    time = f"{shown(part.length)} ({part.share:.0%})"
    phase = f" in the {part.phase}" if part.phase else ""
    if part.doing is None:
        return f"no operator runs for {time}{phase}"
    if part.doing is Doing.COMPUTE:
        return f"{part.who} computes {time}{phase}"
    if part.doing is Doing.HOST:
        return f"{HOST} takes {time} to {'make the replicas' if part.is_replicating else 'issue the work'}{phase}"
    what = f"the {part.moved}{_of_lanes(part.lanes)}"
    if part.is_own:
        return f"{part.who} moves {what} for {time}{phase}"
    if part.waited >= _MOSTLY * part.length:
        return f"{part.who} waits {time} for {what}{phase}"
    busy = shown(part.length - part.waited)
    return f"{what} take {time}{phase}, and {part.who} computes for {busy} of it"


def _of_lanes(lanes: Sequence[int]) -> str:
    """Return ``of lane 3``, ``of lanes 1 to 3`` or ``of lanes 1 and 3``; nothing if no lane is known."""
    if not lanes:
        return ""
    first, *others = lanes
    if not others:
        return f" of lane {first}"
    if len(lanes) > 2 and lanes[-1] - first == len(lanes) - 1:
        return f" of lanes {first} to {lanes[-1]}"
    return f" of lanes {', '.join(map(str, lanes[:-1]))} and {lanes[-1]}"


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
