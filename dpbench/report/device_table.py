"""The table of devices: how busy they were, their memory, power and traffic; and why figures are missing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rich.text import Text

from dpbench.analysis.compare_variants import ComparedCase
from dpbench.analysis.device_summary import DeviceSummary, WindowReadings, busiest_and_idlest, summarise_devices
from dpbench.analysis.over_rounds import OverRounds, notes_on_missing, over_values
from dpbench.records.baseline import Figures
from dpbench.records.readings import DeviceTelemetry
from dpbench.report.table import NONE, Column, Table, folded, plain_lines
from dpbench.text.outside import one_line
from dpbench.text.quantities import byte_unit, number, time_unit

_LEGEND = {
    "PCIe": "PCIe: sent and received. ",
    "NVLink": "NVLink: sent and received. ",
    "throttled": "Throttled: the share of time. ",
    "memory": "Memory: in tensors. ",
}


@dataclass(frozen=True)
class DeviceRows:
    """The devices of one variant or test. The peak is that of its processes' host memory."""

    name: str
    devices: Sequence[DeviceSummary]
    peak_rss_bytes: OverRounds | None


def devices_of(rows: Sequence[ComparedCase]) -> list[DeviceRows]:
    summaries = [row.summary for row in rows]
    return [DeviceRows(summary.case.variant, summary.devices, summary.peak_rss_bytes) for summary in summaries]


@dataclass(frozen=True)
class _Line:
    """`first_of` is the row on its first line, `device` the one whose figures are shown."""

    first_of: DeviceRows | None
    name: str
    device: DeviceSummary | None


def _figure(name: str, header: str, unit: float | None = None) -> Column:
    return Column(header, lambda line: line.device and line.device.value(name), key=name, unit=unit)


_SMS = "busy SMs"
_KERNEL = "time with a kernel"
_MEMORY = "memory"
_FIGURES = {
    _SMS: _figure("sm_busy_percent", "busy\nSMs, %"),
    _KERNEL: _figure("kernel_running_percent", "with a\nkernel, %"),
    "DRAM": _figure("dram_bandwidth_percent", "DRAM,\n%"),
    _MEMORY: _figure("peak_device_bytes", "memory,\n"),
    "power": _figure("power_w", "power,\nW"),
    "energy": _figure("energy_per_step_j", "energy,\nJ/step"),
    "PCIe": _figure("pcie_bytes_per_step", "PCIe,\nMB/step", 1e6),
    "NVLink": _figure("nvlink_bytes_per_step", "NVLink,\nMB/step", 1e6),
    "throttled": _figure("throttled_percent", "throttled,\n%"),
}
"""By their labels in notes."""


def devices_parts(rows: Sequence[DeviceRows], first: str = "variant") -> Iterator[Table | Text]:
    """The table and its notes; nothing if nothing was read. `first` is the header of the rows' names."""
    if columns := devices_columns(rows, first):
        yield Table("devices", columns, devices_lines(rows), keys=2 if _shown(rows) else 1)
        notes = list(_notes(rows))
        yield from map(Text, [*notes, ""] if notes else [])


def devices_columns(rows: Sequence[DeviceRows], first: str = "variant") -> list[Column]:
    """The columns of `devices_lines`; none if nothing was read."""
    lines = devices_lines(rows)
    columns = list(_shown(rows).values())
    for place, column in enumerate(columns):
        if column is _FIGURES[_MEMORY]:
            unit, name = byte_unit(filter(None, map(column.value, lines)))
            columns[place] = replace(column, header=f"{column.header}{name}", unit=unit)
    keys = [Column("device", lambda line: line.name)] if columns else []
    peaks = [peak.value for row in rows if (peak := row.peak_rss_bytes) and peak.value]
    if peaks:
        unit, name = byte_unit(peaks)

        def host(line: _Line) -> str | None:
            peak = line.first_of.peak_rss_bytes if line.first_of else None
            return "" if line.first_of is None else number(peak.value / unit) if peak and peak.value else None

        columns.append(Column(f"host memory,\n{name}", host))
    names = Column(first, lambda line: folded(line.first_of.name) if line.first_of else "")
    return [names, *keys, *columns] if columns else []


def devices_lines(rows: Sequence[DeviceRows]) -> list[_Line]:
    shown = list(_shown(rows).values())
    return [
        _Line(None if place else row, name, device)
        for row in rows
        if row.devices or row.peak_rss_bytes is not None
        for place, (name, device) in enumerate(_ends(row, shown))
    ]


def devices_legend(rows: Sequence[DeviceRows]) -> str:
    shown = _shown(rows)
    several = "; of several devices the busiest, then the idlest" if shown else ""
    columns = "".join(sentence for label, sentence in _LEGEND.items() if label in shown)
    return (
        f"devices: medians over rounds, of the timed steps{several}. {columns}Host memory: all processes of the case."
    )


def _figures(rows: Sequence[DeviceRows]) -> dict[str, Column]:
    """All columns; time with a kernel only if a device does not report busy SMs."""
    has_sms = all(device.value(_FIGURES[_SMS].key) is not None for row in rows for device in row.devices)
    return {label: figure for label, figure in _FIGURES.items() if not (has_sms and label == _KERNEL)}


def _shown(rows: Sequence[DeviceRows]) -> dict[str, Column]:
    """The columns of which a device has a value."""
    devices = [device for row in rows for device in row.devices]
    figures = _figures(rows).items()
    return {
        label: figure for label, figure in figures if any(device.value(figure.key) is not None for device in devices)
    }


def _ends(row: DeviceRows, shown: Sequence[Column]) -> Iterator[tuple[str, DeviceSummary | None]]:
    """One device if all have equal figures, else the busiest and the idlest."""
    texts = {tuple(figure.cell(_Line(None, "", device)) for figure in shown) for device in row.devices}
    if texts <= {(NONE,) * len(shown)}:
        yield NONE, None
    elif len(row.devices) > 1 and len(texts) == 1:
        yield f"each of {len(row.devices)}", row.devices[0]
    else:
        yield from ((one_line(device.device), device) for device in busiest_and_idlest(row.devices))


def _notes(rows: Sequence[DeviceRows]) -> Iterator[str]:
    """Why figures are missing, with ``telemetry`` in place of the labels of all telemetry."""
    figures = _figures(rows)
    for line in notes_on_missing(
        (label, (row.name, device.device), device.figures[figure.key])
        for label, figure in figures.items()
        for row in rows
        for device in row.devices
    ):
        labels, reason = line.split(": ", 1)
        yield f"telemetry: {reason}" if set(labels.split(", ")) == figures.keys() - {_MEMORY} else line


class BenchmarkReadings(WindowReadings, Protocol):
    """Over the rounds of one benchmark."""

    @property
    def peak_rss_bytes(self) -> int: ...


@dataclass(frozen=True)
class BenchmarkRow:
    """One benchmark; `then` is its baseline."""

    name: str
    now: Figures
    then: Figures | None
    window: BenchmarkReadings


def benchmark_lines(rows: Sequence[BenchmarkRow], width: int) -> list[str]:
    """The table of times, and the table of devices that `dpbench compare` prints, by test."""
    if not rows:
        return []
    devices = [
        DeviceRows(row.name, summarise_devices([row.window]), over_values([row.window.peak_rss_bytes])) for row in rows
    ]
    unit_s, unit = time_unit([row.now.minimum_s.value for row in rows])
    columns = [
        Column("test", lambda row: row.name),
        Column(f"median, {unit}", lambda row: row.now.median_s.text(unit_s)),
        Column(f"minimum, {unit}", lambda row: row.now.minimum_s.text(unit_s)),
        Column("rounds", lambda row: row.now.rounds),
        Column(
            "median / baseline",
            lambda row: None if row.then is None else f"{row.now.median_s.value / row.then.median_s.value:.3f}",
        ),
        Column("GPU busy, %", lambda row: _busy(row.window)),
    ]
    # At any width a test has one line, so that a script finds its figures.
    times = plain_lines(Table("times", columns, rows), width=10_000)
    return [*times, *plain_lines(*devices_parts(devices, "test"), width=width)]


def _busy(window: BenchmarkReadings) -> str:
    """For each GPU the percentage of busy SMs, or else of the time in which a kernel ran."""
    gpus = [gpu for gpu in (window.telemetry or {}).values() if isinstance(gpu, DeviceTelemetry)]
    values = [(gpu.sm_busy_percent.value, gpu.kernel_running_percent.value) for gpu in gpus]
    percents = [sm if sm is not None else running for sm, running in values]
    return ", ".join("?" if value is None else f"{value:.0f}" for value in percents) or NONE
