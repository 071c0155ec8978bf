"""What is replayed: recorded events, and events that stand for what runs in their place. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.records.counts import Phase
from dpbench.records.recording import Copy, Mark, Operator, Wait
from dpbench.records.recording import RecordedEvent as Event

MAIN = 0
"""The thread that takes the step."""


@dataclass(frozen=True)
class Collective:
    """What the recording has as several copies, and NCCL sends at once among all devices.

    `name` is ``broadcast``, ``reduce`` or ``all_reduce``.
    """

    id: int
    name: str
    size_bytes: float
    streams: tuple[int, ...]
    thread: int
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True)
class BatonPass:
    """An interleaved lane lets the next one run: a lock changes hands, and so does the interpreter's."""

    id: int


@dataclass(frozen=True)
class GraphLaunch:
    """The launch of a CUDA graph. The host issues all its `nodes` by one call."""

    id: int
    thread: int
    nodes: tuple[Operator | Wait, ...]


AnyEvent = Event | Collective | BatonPass | GraphLaunch


def together(events: Sequence[AnyEvent]) -> range | None:
    """Return the events while the lanes' threads run, None if there are no such threads.

    They begin with the first one of a lane: in its own thread, or, if the main thread runs a lane, the first matrix
    product or convolution there. The main thread waits for them before it gathers: before its next copy between
    devices, or else before its first event after all of theirs.
    """
    end = next((i for i, e in enumerate(events) if isinstance(e, Mark) and e.name == Phase.BACKWARD), len(events))
    lanes = [i for i, event in enumerate(events[:end]) if getattr(event, "thread", MAIN) != MAIN]
    if not lanes:
        return None
    own = (i for i, event in enumerate(events[:end]) if isinstance(event, Operator) and event.flops)
    begin = min(lanes[0], next(own, end))
    gathers = (i for i in range(begin, end) if _is_gathered(events[i]))
    after = next((i for i in range(lanes[-1] + 1, end) if getattr(events[i], "thread", MAIN) == MAIN), end)
    return range(begin, max(next(gathers, after), lanes[-1] + 1))


def _is_gathered(event: AnyEvent) -> bool:
    return isinstance(event, Copy) and event.thread == MAIN and None not in (event.source, event.destination)
