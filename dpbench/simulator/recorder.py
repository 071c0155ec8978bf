"""Adds events to the recordings that run, with the host's thread. Without torch.

At the end of a recording, keys of threads become small numbers that do not depend on which thread came first.
"""

import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dpbench.records.recording import ON_THREADS, Copy, Operator, RecordedEvent, Recording
from dpbench.simulator import current

_keys = itertools.count(1)


class _Key(threading.local):
    """A thread's key, never used again; the main thread has 0."""

    def __init__(self) -> None:
        self.key = 0 if threading.current_thread() is threading.main_thread() else next(_keys)


_own = _Key()


def thread_key(device: int | None = None) -> int:
    """In a backward pass it is -1 - the running node's device: the engine has a thread for each. Between two nodes it
    is -1 - `device`.
    """
    backward = current.backward()
    if backward is None:
        return _own.key
    return -1 - (current.device() if backward.is_in_node or device is None else device)


def numbers_of_threads(taker: int, first_devices: Iterable[tuple[int, int | None]], devices: int) -> dict[int, int]:
    """Numbers by key; that of `taker`, which takes the step, is 0.

    `first_devices` has threads in the order of their first events, with the first device of each. The number is 1 +
    that device, and 1 + `devices` + the device for a thread of the engine. If it is taken, or there is no device, it is
    the next number above those.
    """
    numbers = {taker: 0}
    taken = {0}
    free = itertools.count(2 * devices + 1)
    for key, device in sorted(first_devices, key=lambda thread: (thread[1] is None, thread[1] or 0)):
        if key == taker:
            continue
        if key < 0:
            numbers[key] = devices - key
            continue
        device_number = None if device is None else device + 1
        numbers[key] = next(free) if device_number is None or device_number in taken else device_number
        taken.add(numbers[key])
    return numbers


class Recorder:
    def __init__(self) -> None:
        self._last = 0
        self.running: list[Recording] = []

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def add(self, event: RecordedEvent) -> None:
        """`event.thread` is a `thread_key` until the recording ends."""
        for recording in self.running:
            recording.events.append(event)

    @contextmanager
    def record(self, recording: Recording) -> Iterator[Recording]:
        self.running.append(recording)
        taker = thread_key()
        try:
            yield recording
        finally:
            self.running.remove(recording)
            recording.events = _with_numbers(recording, taker)


def _with_numbers(recording: Recording, taker: int) -> list[RecordedEvent]:
    firsts: dict[int, int | None] = {}
    for event in recording.events:
        if isinstance(event, ON_THREADS) and firsts.get(event.thread) is None:
            firsts[event.thread] = _device_of(event)
    numbers = numbers_of_threads(taker, firsts.items(), recording.devices)
    return [
        replace(event, thread=numbers[event.thread])
        if isinstance(event, ON_THREADS) and numbers[event.thread] != event.thread
        else event
        for event in recording.events
    ]


def _device_of(event: RecordedEvent) -> int | None:
    if isinstance(event, Operator):
        return event.device
    if isinstance(event, Copy):
        return event.source if event.source is not None else event.destination
    return None
