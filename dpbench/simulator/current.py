"""What is current in a thread: the device, one stream on each device, the backward pass."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dpbench.simulator.streams import VectorClock


@dataclass(eq=False, slots=True)
class Backward:
    """One pass: what was current where it was called, and the streams on which the graph's leaves ran.

    `will_join` once the join with the caller's streams is arranged; `is_in_node` between a node's beginning and end;
    `error` is what an operator raised last.
    """

    device: int
    streams: dict[int, int]
    leaf_streams: set[int] = field(default_factory=set)
    will_join: bool = False
    is_in_node: bool = False
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GradientHandoff:
    """A gradient is ready on `producer` at `ready`; the graph node that gets it runs on `consumer`."""

    backward: Backward
    ready: VectorClock
    producer: int
    consumer: int | None


class _Current(threading.local):
    """A new thread begins on device 0 and the default streams, and in no backward.

    `streams` maps a device to its current stream where that is not the default one (device i's has the id i);
    `entered` keeps, for each stream, what was current before each ``with`` block of it.
    """

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, int] = {}
        self.backward: Backward | None = None
        self.entered: dict[int, list[tuple[int, int]]] = {}


_current = _Current()


def device() -> int:
    return _current.device


def set_device(index: int) -> int:
    """Make it current; the index of the one before."""
    before, _current.device = _current.device, index
    return before


def stream(device: int) -> int:
    return _current.streams.get(device, device)


def enter_stream(device: int, stream: int) -> None:
    """Make the device and the stream on it current until `leave_stream`."""
    before = set_device(device), _current.streams.get(device, device)
    _current.entered.setdefault(stream, []).append(before)
    _current.streams[device] = stream


def leave_stream(device: int, stream: int) -> None:
    _current.device, _current.streams[device] = _current.entered[stream].pop()


def set_stream(device: int, stream: int) -> None:
    _current.device, _current.streams[device] = device, stream


def backward() -> Backward | None:
    """The backward pass that this thread is in."""
    return _current.backward


@contextmanager
def in_backward() -> Iterator[Backward]:
    """Run a backward pass, and come back to what was current."""
    outer, device, streams = _current.backward, _current.device, _current.streams
    _current.backward = inner = Backward(device, dict(streams))
    _current.streams = dict(streams)
    try:
        yield inner
    finally:
        _current.backward, _current.device, _current.streams = outer, device, streams


def begin_node(device: int, stream: int) -> None:
    """As in one of the engine's own threads: all streams are the default ones but the node's."""
    assert _current.backward is not None
    _current.device, _current.streams = device, {device: stream}
    _current.backward.is_in_node = True


def end_node() -> None:
    here = _current.backward
    assert here is not None
    _current.device, _current.streams = here.device, dict(here.streams)
    here.is_in_node = False
