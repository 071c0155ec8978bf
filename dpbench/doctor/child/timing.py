"""Times of work on a device and of calls on the host, for `measure_machine.py`.

A measurement first enqueues a large product. While it runs, the work to be timed queues up behind it. So the device
never waits for the host while it is timed, and a call never finds an idle device.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_MOST, _LEAST = 20, 3
_BUDGET_S = 0.5
_MOST_EDGE, _LEAST_EDGE = 8192, 1024
_LONG_ENOUGH_S = 0.02

Measure = Callable[[], float]
Work = Callable[[], object]


def repeated(measure: Measure, budget_s: float = _BUDGET_S) -> tuple[float, ...]:
    """Return 3 to 20 results of `measure`, as many as the budget allows. The first call is not counted."""
    measure()
    end_s = time.perf_counter() + budget_s
    found = [measure() for _ in range(_LEAST)]
    while len(found) < _MOST and time.perf_counter() < end_s:
        found.append(measure())
    return tuple(found)


class Bench:
    """Takes times on the devices of this machine. All are of one type, such as CUDA.

    `edge` is that of the large square product: up to 8192, so that one takes about 20 ms.
    """

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.devices = list(devices)
        self.module: Any = torch.get_device_module(devices[0])
        self.edge = _LEAST_EDGE
        self._large: dict[torch.device, tuple[Tensor, Tensor]] = {}
        while self.edge < _MOST_EDGE and self._product_s() < _LONG_ENOUGH_S:
            self.edge *= 2

    def product(self, device: torch.device) -> None:
        """Enqueue the large product of float32 on the device's current stream."""
        found = self._large.get(device)
        if found is None or found[0].shape[0] != self.edge:
            self._large[device] = found = (
                torch.ones(self.edge, self.edge, device=device),
                torch.ones(self.edge, self.edge, device=device),
            )
        torch.mm(found[0], found[0], out=found[1])

    def on_device(self, device: torch.device, work: Work, calls: int = 10) -> Measure:
        """Return a function that returns the seconds of one call's work on the device's current stream."""
        begin, end = (self.module.Event(enable_timing=True) for _ in range(2))

        def measure() -> float:
            stream = self.module.current_stream(device)
            self.product(device)
            begin.record(stream)
            for _ in range(calls):
                work()
            end.record(stream)
            self.synchronise()
            return float(begin.elapsed_time(end)) / 1000 / calls

        return measure

    def on_host(self, work: Work, calls: int = 100, *, is_held: bool = True) -> Measure:
        """Return a function that returns the seconds of one call on the host, while the devices are busy.

        Without `is_held` the devices are idle.
        """

        def measure() -> float:
            self.synchronise()
            for device in self.devices if is_held else ():
                self.product(device)
            begin_s = time.perf_counter()
            for _ in range(calls):
                work()
            found_s = (time.perf_counter() - begin_s) / calls
            self.synchronise()
            return found_s

        return measure

    def to_the_end(self, work: Work, calls: int) -> Measure:
        """Return a function that returns the seconds of one call until all devices are idle."""

        def measure() -> float:
            self.synchronise()
            begin_s = time.perf_counter()
            for _ in range(calls):
                work()
            self.synchronise()
            return (time.perf_counter() - begin_s) / calls

        return measure

    def synchronise(self) -> None:
        """Wait until all devices are idle."""
        for device in self.devices:
            self.module.synchronize(device)

    def _product_s(self) -> float:
        device = self.devices[0]
        measure = self.to_the_end(lambda: self.product(device), 1)
        measure()
        return measure()
