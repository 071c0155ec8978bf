"""What is read beside the samples, over exactly the window in which they are taken."""

from collections.abc import Sequence

import torch

from dpbench.measure.memory import peak_device_bytes, peak_reserved_bytes, peak_rss_bytes, reset_device_peaks
from dpbench.measure.telemetry import Telemetry
from dpbench.results.telemetry import DeviceTelemetry, Reading


class Window:
    """The devices of one process; `begin` and `end` are called at the edges, with the devices idle.

    What was read is there after `end`: by device, but for `peak_rss_bytes`.
    """

    telemetry: dict[str, DeviceTelemetry | str]
    peak_device_bytes: dict[str, Reading]
    peak_reserved_bytes: dict[str, Reading]
    peak_rss_bytes: int

    def __init__(self, devices: Sequence[torch.device], telemetry: Telemetry) -> None:
        self._devices, self._telemetry = devices, telemetry

    def begin(self) -> None:
        reset_device_peaks(self._devices)
        self._telemetry.begin()

    def end(self, steps: int) -> None:
        self.telemetry = self._telemetry.end(steps)
        self.peak_device_bytes = peak_device_bytes(self._devices)
        self.peak_reserved_bytes = peak_reserved_bytes(self._devices)
        self.peak_rss_bytes = peak_rss_bytes()
