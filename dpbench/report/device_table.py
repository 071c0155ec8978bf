"""The table of devices: how busy they were, their memory, power, traffic and throttling; and why figures are missing.

A pytest session's benchmarks have it below their times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.text import Text

from dpbench.records.baseline import Figures
from dpbench.records.device_summary import DeviceSummary, WindowReadings, busiest_and_idlest, summarise_devices
from dpbench.records.readings import DeviceTelemetry, OverRounds, over_values
from dpbench.report.table import NONE, Column, Table, folded, plain_lines
from dpbench.text.outside import one_line
from dpbench.text.quantities import byte_unit, number, time_unit

_LEGEND = {
    "PCIe": "PCIe: sent and received. ",
    "NVLink": "NVLink: sent and received. ",
    "throttled": "Throttled: the share of time. ",
    "memory": "Memory: in tensors. ",
}
_TELEMETRY = "telemetry"


@dataclass(frozen=True)
class DeviceRows:
    """The devices of one variant or test, and the peak of host memory of its processes."""

    name: str
    devices: Sequence[DeviceSummary]
    peak_rss_bytes: OverRounds | None


@dataclass(frozen=True)
class _Figure:
    """A column: its label in notes, its header, the name of the figure and the unit, None for that of bytes."""

    label: str
    header: str
    name: str
    unit: float | None = 1.0


_BUSY_SMS = _Figure("busy SMs", "busy\nSMs, %", "sm_busy_percent")
_KERNEL = _Figure("time with a kernel", "with a\nkernel, %", "kernel_running_percent")
_REST = (
    _Figure("DRAM", "DRAM,\n%", "dram_bandwidth_percent"),
    _Figure("memory", "memory,\n", "peak_device_bytes", None),
    _Figure("power", "power,\nW", "power_w"),
    _Figure("energy", "energy,\nJ/step", "energy_per_step_j"),
    _Figure("PCIe", "PCIe,\nMB/step", "pcie_bytes_per_step", 1e6),
    _Figure("NVLink", "NVLink,\nMB/step", "nvlink_bytes_per_step", 1e6),
    _Figure("throttled", "throttled,\n%", "throttled_percent"),
)


def devices_parts(rows: Sequence[DeviceRows], first: str = "variant") -> Iterator[Table | Text]:
    """Yield the table and its notes, or nothing if nothing was read.

    `first` is the header of the rows' names.
    """
    rows = [row for row in rows if row.devices or row.peak_rss_bytes is not None]
    shown = _shown(rows)
    lines = [line for row in rows for line in _lines(row, shown)]
    if not lines or not (shown or any(row.peak_rss_bytes for row in rows)):
        return
    firsts = {id(row): line for line in reversed(lines) for row in line[:1]}

    def once(line: _Line, text: str | None) -> str | None:
        """Return the text; of lines of one row, the first alone has it."""
        return text if firsts[id(line[0])] is line else ""

    keys = [Column(first, lambda line: once(line, folded(line[0].name)))]
    keys += [Column("device", lambda line: line[1])] if shown else []
    columns = [_column(figure, lines) for figure in shown]
    peaks = {id(row): row.peak_rss_bytes.value for row, _, _ in lines if row.peak_rss_bytes is not None}
    if peaks:
        unit, name = byte_unit(peak for peak in peaks.values() if peak is not None)
        host = Column(f"host memory,\n{name}", lambda line: once(line, _cell(peaks.get(id(line[0])), unit)))
        columns.append(host)
    yield Table("devices", [*keys, *columns], lines, keys=len(keys))
    notes = list(_notes(rows, _figures(rows)))
    yield from map(Text, [*notes, ""] if notes else [])


def devices_legend(rows: Sequence[DeviceRows]) -> str:
    """Return the legend of the tables of these rows: what their columns mean."""
    shown = {each.label for each in _shown(rows)}
    several = "; of several devices the busiest, then the idlest" if shown else ""
    columns = "".join(sentence for label, sentence in _LEGEND.items() if label in shown)
    return (
        f"devices: medians over rounds, of the timed steps{several}. {columns}Host memory: all processes of the case."
    )


def _all_devices(rows: Sequence[DeviceRows]) -> Iterator[DeviceSummary]:
    return (device for row in rows for device in row.devices)


def _figures(rows: Sequence[DeviceRows]) -> list[_Figure]:
    """Return all columns. Time with a kernel is among them if a device does not report busy SMs."""
    without = any(_value(device, _BUSY_SMS) is None for device in _all_devices(rows))
    return [_BUSY_SMS, *([_KERNEL] if without else []), *_REST]


def _shown(rows: Sequence[DeviceRows]) -> list[_Figure]:
    """Return the columns of which a device has a value."""
    devices = list(_all_devices(rows))
    return [figure for figure in _figures(rows) if any(_value(device, figure) is not None for device in devices)]


_Line = tuple[DeviceRows, str, DeviceSummary | None]


def _lines(row: DeviceRows, shown: Sequence[_Figure]) -> Iterator[_Line]:
    """Yield one line if all devices have equal figures, else one for the busiest and one for the idlest device."""
    if not any(_value(device, figure) is not None for device in row.devices for figure in shown):
        yield row, NONE, None
        return
    ends = busiest_and_idlest(row.devices)
    texts = {tuple(_cell(_value(each, figure), figure.unit or 1.0) for figure in shown) for each in row.devices}
    if len(row.devices) > 1 and len(texts) == 1:
        yield row, f"each of {len(row.devices)}", ends[0]
        return
    for device in ends:
        yield row, one_line(device.device), device


def _column(figure: _Figure, lines: Sequence[_Line]) -> Column:
    unit, header = figure.unit, figure.header
    if unit is None:
        values = [None if device is None else _value(device, figure) for _, _, device in lines]
        unit, name = byte_unit(value for value in values if value is not None)
        header += name
    return Column(
        header, lambda line: None if line[2] is None else _value(line[2], figure), lambda value: number(value / unit)
    )


def _notes(rows: Sequence[DeviceRows], figures: Sequence[_Figure]) -> Iterator[str]:
    found = [
        (figure.label, (row.name, device.device), device.figures[figure.name])
        for figure in figures
        for row in rows
        for device in row.devices
    ]
    every = {figure.label for figure in figures if figure.name != "peak_device_bytes"}
    return (_shorter(line, every) for line in notes_on_missing(found))


def _shorter(line: str, every: set[str]) -> str:
    """Return the line with ``telemetry`` in place of the labels of all telemetry."""
    labels, rest = line.split(": ", 1)
    return f"{_TELEMETRY}: {rest}" if set(labels.split(", ")) == every else line


def _value(device: DeviceSummary, figure: _Figure) -> float | None:
    return device.value(figure.name)


def _cell(value: float | None, unit: float) -> str:
    return NONE if value is None else number(value / unit)


Place = tuple[str, str]
"""The variant and the device that a figure is of; '' if it is not of one device."""


def notes_on_missing(figures: Iterable[tuple[str, Place, OverRounds]]) -> Iterator[str]:
    """Yield one line for each reason: ``labels: reason (places)``.

    `figures` has a label, the place and the figure. Places are left out if the reason is that of all of them.
    """
    places_of: dict[str, list[Place]] = {}
    missing: dict[tuple[str, str], list[Place]] = {}
    for label, place, figure in figures:
        places_of.setdefault(label, []).append(place)
        if figure.reason is not None:
            missing.setdefault((label, _why(figure)), []).append(place)
    merged: dict[tuple[str, str], list[str]] = {}
    for (label, why), places in missing.items():
        merged.setdefault((why, _where(places, places_of[label])), []).append(label)
    for (why, where), labels in merged.items():
        yield one_line(f"{', '.join(labels)}: {why}" + (f" ({where})" if where else ""))


def _where(places: Sequence[Place], every: Sequence[Place]) -> str:
    """Return the places: as variants or as devices alone where all places of these are meant, '' for all places."""
    if len(places) == len(every):
        return ""
    for part in (0, 1):
        names = dict.fromkeys(place[part] for place in places)
        if len(places) == sum(place[part] in names for place in every):
            return ", ".join(names)
    return ", ".join(f"{variant} on {device}" for variant, device in places)


def _why(figure: OverRounds) -> str:
    rounds = figure.rounds + figure.rounds_without
    return (
        str(figure.reason) if figure.value is None else f"{figure.rounds_without} of {rounds} rounds: {figure.reason}"
    )


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
    """Return for each GPU the percentage of busy SMs, or else of the time in which a kernel ran."""
    gpus = [each for each in (window.telemetry or {}).values() if isinstance(each, DeviceTelemetry)]
    values = [(each.sm_busy_percent.value, each.kernel_running_percent.value) for each in gpus]
    known = [sm if sm is not None else running for sm, running in values]
    return ", ".join("?" if value is None else f"{value:.0f}" for value in known) or NONE
