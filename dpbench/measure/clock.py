"""The clock of a case, and a stopwatch for parts of a step."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Clock = Callable[[], float]
"""Waits until the case's devices are idle, then returns seconds since some fixed moment."""

_TIMED_EVENTS = ("cuda", "xpu")


def make_clock(devices: Sequence[torch.device]) -> Clock:
    """The clock waits for all devices: torch.utils.benchmark waits for one, and misses the work of the others."""
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


class Stopwatch(Protocol):
    """Call `between`, the seconds between two marks, once the devices are idle."""

    def mark(self, devices: Sequence[torch.device], /) -> Any: ...

    def between(self, begin: Any, end: Any) -> float: ...


class ClockStopwatch:
    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._now = make_clock(devices)

    def mark(self, _: Sequence[torch.device]) -> float:
        return self._now()

    def between(self, begin: float, end: float) -> float:
        return end - begin


class EventStopwatch:
    """Marks are events in the devices' current streams. The slowest device's time between two marks counts."""

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
