"""The stock wrapper's copies, as NCCL sends them where torch has it. Pure.

The simulator follows torch's path without NCCL. With NCCL, one call replaces (torch/csrc/cuda/comm.cpp and
torch/nn/parallel/comm.py)::

    broadcast   copy 0 to 1, copy 0 to 2, ... of equal size               a ring from device 0
    reduce      copy 1 to 0, add, copy 2 to 0, add, ... of equal size     a ring to device 0, which adds on the way
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dpbench.records.recording import Copy, Operator, RecordedEvent, Recording

_ADDS = ("aten.add.Tensor", "aten.add_.Tensor")
_REDUCING_NODE = "BroadcastBackward"
_HOME = 0
"""The base's device."""


@dataclass(frozen=True)
class Collective:
    """What the recording has as several copies, and NCCL sends at once: ``broadcast`` or ``reduce``."""

    id: int
    name: str
    size_bytes: float
    streams: tuple[int, ...]
    thread: int
    replaces: tuple[int, ...] = ()


AnyEvent = RecordedEvent | Collective


def with_collectives(recording: Recording) -> list[AnyEvent]:
    """Return the events of a recorded step with NCCL's collectives."""
    devices = tuple(dict.fromkeys(recording.streams.values()))
    lanes = len(devices)
    events, at = recording.events, 0
    found: list[AnyEvent] = []
    while at < len(events):
        run = _run(events, at, lanes) if lanes > 1 else None
        if run is None:
            found.append(events[at])
            at += 1
        else:
            replaced, end = run
            found += _replaced(events[at:end], replaced, tuple(range(lanes)))
            at = end
    return found


def bytes_by_link(recording: Recording) -> dict[str, int]:
    """Return the bytes over each link between devices, such as ``sim:0->sim:1``, with NCCL's collectives.

    A ring from the base's device visits the devices in their order: a broadcast loads each hop once, and a reduction
    each hop once, the other way.
    """
    found: Counter[str] = Counter()
    for event in with_collectives(recording):
        if isinstance(event, Collective):
            ring = [_HOME, *(device for device in event.streams if device != _HOME)]
            hops = pairwise(ring if event.name == "broadcast" else reversed(ring))
            found.update({f"sim:{one}->sim:{other}": int(event.size_bytes) for one, other in hops})
        elif isinstance(event, Copy) and event.source is not None and event.destination is not None:
            found[f"sim:{event.source}->sim:{event.destination}"] += event.size_bytes
    return dict(sorted(found.items()))


def _run(events: Sequence[AnyEvent], at: int, lanes: int) -> tuple[list[Copy], int] | None:
    """Return the copies of the collective that begins with the event at this place, and the place of its end."""
    first = events[at]
    if not isinstance(first, Copy) or not _may_begin(first):
        return None
    outward = first.source == _HOME
    copies: dict[int | None, Copy] = {}
    for place in range(at, len(events)):
        event = events[place]
        if isinstance(event, Copy):
            near, far = (event.source, event.destination) if outward else (event.destination, event.source)
            if near != _HOME or far in (None, *copies) or event.size_bytes != first.size_bytes:
                return None
            copies[far] = event
            if len(copies) == lanes - 1:
                return list(copies.values()), place + 1 if outward else _after_addition(events, place + 1)
        elif isinstance(event, Operator) and event.is_launched and (outward or event.name not in _ADDS):
            return None
    return None


def _may_begin(copy: Copy) -> bool:
    """Return whether a copy can be the first of a broadcast or a reduction."""
    if copy.source is None or copy.destination is None:
        return False
    return copy.node is None if copy.source == _HOME else copy.destination == _HOME and copy.node == _REDUCING_NODE


def _after_addition(events: Sequence[AnyEvent], place: int) -> int:
    """Return the place after the next operator, which adds what the last copy has brought."""
    for at in range(place, len(events)):
        event = events[at]
        if isinstance(event, Operator) and event.is_launched:
            return at + 1
    return len(events)


def _replaced(events: Sequence[AnyEvent], copies: Sequence[Copy], streams: tuple[int, ...]) -> list[AnyEvent]:
    """Return the events without the copies and their additions, and the collective in place of the first copy."""
    adds = [e for e in events if isinstance(e, Operator) and e.is_launched and e.name in _ADDS and e.device == _HOME]
    dropped = [copy.id for copy in copies] + [add.id for add in adds]
    name = "broadcast" if copies[0].source == _HOME else "reduce"
    ids = set(dropped)
    one = Collective(dropped[0], name, copies[0].size_bytes, streams, copies[0].thread, tuple(dropped))
    kept = [event for event in events if event.id not in ids]
    waits_before = [event for event in kept if event.id < dropped[0]]
    return [*waits_before, one, *(event for event in kept if event.id > dropped[0])]
