"""The clock: it reads the time only after all devices of the case have finished."""

import time
from collections.abc import Callable, Sequence

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
