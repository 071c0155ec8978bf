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
