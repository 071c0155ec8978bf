"""The time between two places of one step, on the host or in the devices' streams."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from dpbench.measure.clock import make_clock

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
