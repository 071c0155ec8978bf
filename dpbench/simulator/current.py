"""The current device, streams and backward pass of each thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dpbench.simulator.streams import VectorClock


@dataclass(eq=False, slots=True)
class Backward:
    """`will_join` is set once the caller's streams are certain to wait for the leaves."""

    device: int
    streams: dict[int, int]
    leaf_streams: set[int] = field(default_factory=set)
    will_join: bool = False
    is_in_node: bool = False
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GradientHandoff:
    """A gradient is ready on the stream `producer` at `ready`; `consumer` is the next stream."""

    backward: Backward
    ready: VectorClock
    producer: int
    consumer: int | None


class _Current(threading.local):
    """`streams` maps a device to its current stream; a missing device is on its default stream.

    `entered` maps a stream to the device and stream to restore at the end of each ``with`` block.
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
    """Return the previous device."""
    before, _current.device = _current.device, index
    return before


def stream(device: int) -> int:
    return _current.streams.get(device, device)


def enter_stream(device: int, stream: int) -> None:
    before = set_device(device), _current.streams.get(device, device)
    _current.entered.setdefault(stream, []).append(before)
    _current.streams[device] = stream


def leave_stream(device: int, stream: int) -> None:
    _current.device, _current.streams[device] = _current.entered[stream].pop()


def set_stream(device: int, stream: int) -> None:
    _current.device, _current.streams[device] = device, stream


def backward() -> Backward | None:
    return _current.backward


@contextmanager
def in_backward() -> Iterator[Backward]:
    outer, device, streams = _current.backward, _current.device, _current.streams
    _current.backward = inner = Backward(device, dict(streams))
    _current.streams = dict(streams)
    try:
        yield inner
    finally:
        _current.backward, _current.device, _current.streams = outer, device, streams


def begin_node(device: int, stream: int) -> None:
    """Elsewhere the default streams are current, as in an engine's thread."""
    assert _current.backward is not None
    _current.device, _current.streams = device, {device: stream}
    _current.backward.is_in_node = True


def end_node() -> None:
    backward = _current.backward
    assert backward is not None
    _current.device, _current.streams = backward.device, dict(backward.streams)
    backward.is_in_node = False
