"""The time between two places of one step, on the host or in the devices' streams."""
# MERGED-DOC measure.clock: """The clock: it reads the time only after all devices of the case have finished."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Clock = Callable[[], float]
"""Answers seconds since some fixed moment, once every device of the case is idle."""


def make_clock(devices: Sequence[torch.device]) -> Clock:
    """A clock for these devices; on the CPU alone it is `time.perf_counter` itself, at no further cost.

    Synchronising only the current device, as torch.utils.benchmark does, would miss the others' work.
    """
    waits = [_synchroniser(device) for device in dict.fromkeys(devices) if device.type != "cpu"]
    if not waits:
        return time.perf_counter

    def now() -> float:
        for wait in waits:
            wait()
        return time.perf_counter()

    return now


def _synchroniser(device: torch.device) -> Callable[[], None]:
    module = torch.get_device_module(device)
    return lambda: module.synchronize(device)


_TIMED_EVENTS = ("cuda", "xpu")


class Stopwatch(Protocol):
    """`mark` now; ask for the seconds between two marks once the devices are idle."""

    def mark(self, devices: Sequence[torch.device], /) -> Any: ...

    def between(self, begin: Any, end: Any) -> float: ...


class ClockStopwatch:
    """Marks are readings of the clock, with all devices of the case idle whichever are asked for."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._now = make_clock(devices)

    def mark(self, _: Sequence[torch.device]) -> float:
        return self._now()

    def between(self, begin: float, end: float) -> float:
        return end - begin


class EventStopwatch:
    """Marks are events in the current streams of the devices; the time between two is the slowest device's."""

    def mark(self, devices: Sequence[torch.device]) -> dict[torch.device, Any]:
        events = {}
        for device in dict.fromkeys(devices):
            module = torch.get_device_module(device)
            events[device] = module.Event(enable_timing=True)
            events[device].record(module.current_stream(device))
        return events

    def between(self, begin: dict[torch.device, Any], end: dict[torch.device, Any]) -> float:
        return max(begin[device].elapsed_time(end[device]) for device in begin) / 1000


def make_stopwatch(devices: Sequence[torch.device]) -> Stopwatch:
    if all(device.type in _TIMED_EVENTS for device in devices):
        return EventStopwatch()
    return ClockStopwatch(devices)
