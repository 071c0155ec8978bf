"""The critical path in words, such as ``device 0 waits 14 ms for the gradients of lane 3``, and shares of a timeline.

Spans of the path that do the same are one part, wherever they are on the path::

    path    [issue][issue]         [  gradients of 3 ][  gradients of 2 ]
                          [ op 0 ]                                       [ op 0 ]
    parts   the host issues the forward; device 0 computes; device 0 waits for the gradients of lanes 2 and 3
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpbench.trace.timeline import Doing, Moved, Span, Timeline

Stretch = tuple[float, float]
"""A start and a finish."""

_LEAST_SHARE = 0.03
_MOSTLY = 0.9
_THE_HOST = "the host"


class _Key(NamedTuple):
    doing: Doing | None
    who: str
    phase: str
    moved: Moved | None = None
    is_own: bool = False


@dataclass(frozen=True)
class PathPart:
    """Spans of the critical path that do the same. `length` is their sum.

    `doing` is None for time in which nothing was recorded. `who` computes, issues or waits; with `is_own` it moves the
    data itself. `waited` is the part of `length` in which a device that waits computes nothing. `moved` and `lanes` say
    what is moved.
    """

    doing: Doing | None
    who: str
    phase: str
    moved: Moved | None
    is_own: bool
    length: float
    share: float
    waited: float
    lanes: tuple[int, ...]


def parts_of_path(timeline: Timeline) -> list[PathPart]:
    """The parts in the order of their first span. Their lengths add up to the timeline's."""
    stretches: dict[_Key, list[Stretch]] = {}
    lanes: dict[_Key, set[int]] = {}
    path = [timeline.spans[i] for i in timeline.path]
    end = 0.0
    for place, span in enumerate(path):
        if span.start > end:
            stretches.setdefault(_Key(None, _THE_HOST, span.phase), []).append((end, span.start))
        # In a profile the next span may start before this one ends: a kernel, before its launch has returned.
        end = min([span.finish, *(later.start for later in path[place + 1 : place + 2])])
        key = _key(span, path[place + 1 :])
        stretches.setdefault(key, []).append((span.start, end))
        lanes.setdefault(key, set()).update(() if span.lane is None else (span.lane,))
    parts = []
    for key, intervals in stretches.items():
        length = covered(intervals)
        waited, share = length - overlap(intervals, computing(timeline, key.who)), length / (timeline.length or 1.0)
        parts.append(PathPart(*key, length, share, waited, tuple(sorted(lanes.get(key, ())))))
    return parts


def _key(span: Span, later: Sequence[Span]) -> _Key:
    """What a span sends is for the device of the next span that is no move."""
    if span.doing is not Doing.MOVE:
        return _Key(span.doing, span.device or _THE_HOST, span.phase)
    waiters = (other.device for other in later if other.doing is not Doing.MOVE)
    who = span.device or next(waiters, None) or _THE_HOST
    return _Key(span.doing, who, span.phase, span.moved or Moved.BYTES, is_own=span.device is not None)


def path_in_words(timeline: Timeline, shown: Callable[[float], str]) -> list[str]:
    """A clause for each part of the critical path; parts of less than three percent share one. `shown` makes a text of
    a time.
    """
    parts = parts_of_path(timeline)
    clauses = [_clause(part, shown) for part in parts if part.share >= _LEAST_SHARE]
    rest = sum(part.length for part in parts if part.share < _LEAST_SHARE)
    return [*clauses, f"smaller parts take {shown(rest)}"] if rest > 0 else clauses


def _clause(part: PathPart, shown: Callable[[float], str]) -> str:
    time = f"{shown(part.length)} ({part.share:.0%})"
    phase = f" in the {part.phase}" if part.phase else ""
    if part.doing is None:
        return f"no operator runs for {time}{phase}"
    if part.doing is Doing.COMPUTE:
        return f"{part.who} computes {time}{phase}"
    if part.doing is Doing.HOST:
        return f"{part.who} takes {time} to issue the work{phase}"
    what = f"the {part.moved}{_of_lanes(part.lanes)}"
    if part.is_own:
        return f"{part.who} moves {what} for {time}{phase}"
    if part.waited >= _MOSTLY * part.length:
        return f"{part.who} waits {time} for {what}{phase}"
    busy = shown(part.length - part.waited)
    return f"{what} take {time}{phase}, and {part.who} computes for {busy} of it"


def _of_lanes(lanes: Sequence[int]) -> str:
    """A text such as ``of lane 3``, ``of lanes 1 to 3`` or ``of lanes 1 and 3``; empty if no lane is known."""
    *other_lanes, last = lanes or (None,)
    if not other_lanes:
        return "" if last is None else f" of lane {last}"
    if len(other_lanes) > 1 and last == other_lanes[0] + len(other_lanes):
        return f" of lanes {other_lanes[0]} to {last}"
    return f" of lanes {', '.join(map(str, other_lanes))} and {last}"


def covered(stretches: Iterable[Stretch]) -> float:
    """The time that the stretches cover together."""
    length, end = 0.0, 0.0
    for start, finish in sorted(stretches):
        length += max(finish - max(start, end), 0.0)
        end = max(end, finish)
    return length


def overlap(one: Sequence[Stretch], other: Sequence[Stretch]) -> float:
    return max(covered(one) + covered(other) - covered([*one, *other]), 0.0)


def computing(timeline: Timeline, device: str) -> list[Stretch]:
    return [(s.start, s.finish) for s in timeline.spans if s.doing is Doing.COMPUTE and s.device == device]


def idle_shares(timeline: Timeline) -> dict[str, float]:
    """By device, the share of the timeline in which it does not compute."""
    length = timeline.length or 1.0
    return {device: 1 - covered(computing(timeline, device)) / length for device in timeline.devices}


def overlapped_share(timeline: Timeline) -> float | None:
    """The share of the communication's time in which a device computes, as the mean over the devices; None if nothing
    is sent.
    """
    moving = [(span.start, span.finish) for span in timeline.spans if span.doing is Doing.MOVE]
    sent = covered(moving) * len(timeline.devices)
    return sum(overlap(moving, computing(timeline, device)) for device in timeline.devices) / sent if sent else None
