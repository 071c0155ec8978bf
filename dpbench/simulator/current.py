"""What is current in a thread: the device, and one stream on each device."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpbench.simulator.autograd import Backward


class _Current(threading.local):
    """A new thread begins on device 0 and the default streams, and in no backward.

    `streams` maps a device to its current stream where that is not the default one (device i's has the id i).
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


def set_stream(device: int, stream: int) -> int:
    """Make it its device's current stream; the one before."""
    before = _current.streams.get(device, device)
    _current.streams[device] = stream
    return before


def backward() -> "Backward | None":
    """The backward pass that this thread is in."""
    return _current.backward


@contextmanager
def in_backward(inner: "Backward") -> Iterator[None]:
    """Run a backward pass, and come back to what was current."""
    outer, device, streams = _current.backward, _current.device, _current.streams
    _current.backward, _current.streams = inner, dict(streams)
    try:
        yield
    finally:
        _current.backward, _current.device, _current.streams = outer, device, streams


def snapshot() -> tuple[int, dict[int, int]]:
    return _current.device, dict(_current.streams)


def restore(device: int, streams: dict[int, int]) -> None:
    _current.device, _current.streams = device, dict(streams)


def entered(stream: int) -> list[tuple[int, int]]:
    """What was current, device and stream, before each `with` block of `stream` that this thread is in."""
    return _current.entered.setdefault(stream, [])
