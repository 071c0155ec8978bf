"""The figures of a pytest session's benchmarks as tables for the terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpbench.report.device_table import DeviceRows, devices_lines
from dpbench.report.units import estimate, time_unit
from dpbench.results.baseline import Figures
from dpbench.results.device_summary import WindowReadings, summarise_devices
from dpbench.results.readings import DeviceTelemetry, over_values


class BenchmarkReadings(WindowReadings, Protocol):
    """What was read of the devices and of the process over the rounds of one benchmark."""

    @property
    def peak_rss_bytes(self) -> int: ...


@dataclass(frozen=True)
class BenchmarkRow:
    """One benchmark of the summary; `then` is its baseline, None without a comparison."""

    name: str
    now: Figures
    then: Figures | None
    window: BenchmarkReadings


def benchmark_lines(rows: Sequence[BenchmarkRow], width: int) -> list[str]:
    """Return the table of times, and the table of devices that `dpbench compare` prints, by test."""
    if not rows:
        return []
    devices = [
        DeviceRows(row.name, summarise_devices([row.window]), over_values([row.window.peak_rss_bytes])) for row in rows
    ]
    return [*_times(rows), *devices_lines(devices, "test", width)]


def _times(rows: Sequence[BenchmarkRow]) -> Iterator[str]:
    unit_s, unit = time_unit([row.now.minimum_s.value for row in rows])
    cells = [("test", f"median, {unit}", f"minimum, {unit}", "rounds", "median / baseline", "GPU busy, %")]
    for row in rows:
        ratio = "-" if row.then is None else f"{row.now.median_s.value / row.then.median_s.value:.3f}"
        figures = estimate(row.now.median_s, unit_s), estimate(row.now.minimum_s, unit_s)
        cells.append((row.name, *figures, str(row.now.rounds), ratio, _busy(row.window)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for name, *others in cells:
        yield "  ".join([name.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))])


def _busy(window: BenchmarkReadings) -> str:
    """Return for each GPU the percentage of busy SMs, or else of the time in which a kernel ran."""
    gpus = [each for each in (window.telemetry or {}).values() if isinstance(each, DeviceTelemetry)]
    values = [(each.sm_busy_percent.value, each.kernel_running_percent.value) for each in gpus]
    known = [sm if sm is not None else running for sm, running in values]
    return ", ".join("?" if value is None else f"{value:.0f}" for value in known) or "-"
