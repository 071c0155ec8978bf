"""The critical path in words, such as ``device 0 waits 14 ms for the gradients of lane 3``.

Spans of the path that do the same are one part, wherever they are on the path::

    path    [issue][issue]         [  gradients of 3 ][  gradients of 2 ]
                          [ op 0 ]                                       [ op 0 ]
    parts   the host issues the forward; device 0 computes; device 0 waits for the gradients of lanes 2 and 3
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpbench.trace.timeline import Doing, Moved, Span, Timeline
from dpbench.trace.waits import Stretch, computing, in_both, total, union

_LEAST_SHARE = 0.03
_MOSTLY = 0.9
HOST = "the host"


@dataclass(frozen=True)
class PathPart:
    """Spans of the critical path that do the same. `length` is their sum, and `share` is that of the whole path.

    `who` computes, issues or waits. `moved` and `lanes` say for what it waits. `waited` is the part of `length` in
    which a device that waits computes nothing. `doing` is None for time in which nothing was recorded.
    """

    doing: Doing | None
    who: str
    phase: str
    length: float
    share: float
    waited: float
    moved: Moved | None = None
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Key:
    doing: Doing | None
    who: str
    phase: str
    moved: Moved | None = None


def parts_of_path(timeline: Timeline) -> list[PathPart]:
    """Return the parts in the order of their first span. Their lengths add up to the timeline's length."""
    stretches: dict[_Key, list[Stretch]] = {}
    lanes: dict[_Key, set[int]] = {}
    spans = timeline.spans
    end = 0.0
    for place, i in enumerate(timeline.path):
        span = spans[i]
        if span.start > end:
            stretches.setdefault(_Key(None, HOST, span.phase), []).append((end, span.start))
        end = span.finish
        key = _key(span, [spans[later] for later in timeline.path[place + 1 :]] if span.moved else [])
        stretches.setdefault(key, []).append((span.start, span.finish))
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
        )
        for key, found in stretches.items()
    ]


def _key(span: Span, later: Sequence[Span]) -> _Key:
    """Return what a span of the path does. What it sends is for the next span of the path that is no move."""
    if span.doing is Doing.COMPUTE:
        return _Key(span.doing, span.device or HOST, span.phase)
    if span.doing is Doing.HOST:
        return _Key(span.doing, HOST, span.phase)
    waiter = next((each for each in later if each.doing is not Doing.MOVE), None)
    who = HOST if waiter is None or waiter.device is None else waiter.device
    return _Key(span.doing, who, span.phase, span.moved or Moved.BYTES)


def _waited(timeline: Timeline, who: str, found: list[Stretch]) -> float:
    return total(found) - total(in_both(union(found), computing(timeline, who))) if who != HOST else total(found)


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
        return f"{HOST} needs {time} to issue the work{phase}"
    what = f"the {part.moved}{_of_lanes(part.lanes)}"
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
