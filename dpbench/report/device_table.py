"""The table of devices: how busy they were, their memory, power, traffic and throttling."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, Group
from rich.text import Text

from dpbench.report.missing import notes_on_missing
from dpbench.report.units import byte_unit, number
from dpbench.report.wide_table import NONE, Column, WideTable, folded
from dpbench.results.device_summary import DeviceSummary, busiest_and_idlest
from dpbench.results.readings import OverRounds
from dpbench.sweep.outside import one_line

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


def devices_parts(rows: Sequence[DeviceRows], first: str = "variant") -> Iterator[WideTable | Text]:
    """Yield the table and its notes, or nothing if nothing was read.

    `first` is the header of the rows' names.
    """
    rows = [row for row in rows if row.devices or row.peak_rss_bytes is not None]
    shown = _shown(rows)
    lines = [line for row in rows for line in _lines(row, shown)]
    if not lines or not (shown or any(row.peak_rss_bytes for row in rows)):
        return
    keys = [Column(first, _once(lines, [folded(row.name) for row, _, _ in lines]))]
    if shown:
        keys.append(Column("device", [label for _, label, _ in lines]))
    columns = [_column(figure, [device for _, _, device in lines]) for figure in shown]
    yield WideTable("devices", keys, [*columns, *_host(lines)])
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


def devices_lines(rows: Sequence[DeviceRows], first: str, width: int) -> list[str]:
    """Return the same as lines of text, without colours."""
    console = Console(width=width, file=StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(Group(*devices_parts(rows, first)))
    return [line.rstrip() for line in captured.get().splitlines()]


def _all_devices(rows: Sequence[DeviceRows]) -> Iterator[DeviceSummary]:
    return (device for row in rows for device in row.devices)


def _figures(rows: Sequence[DeviceRows]) -> list[_Figure]:
    """Return all columns. Time with a kernel is among them if a device does not report busy SMs."""
    without = any(_value(device, _BUSY_SMS) is None for device in _all_devices(rows))
    return [_BUSY_SMS, *([_KERNEL] if without else []), *_REST]


def _shown(rows: Sequence[DeviceRows]) -> list[_Figure]:
    """Return the columns of which a device has a value."""
    devices = list(_all_devices(rows))
    return [figure for figure in _figures(rows) if any(_value(each, figure) is not None for each in devices)]


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


def _column(figure: _Figure, devices: Sequence[DeviceSummary | None]) -> Column:
    values = [None if device is None else _value(device, figure) for device in devices]
    unit, header = figure.unit, figure.header
    if unit is None:
        unit, name = byte_unit(value for value in values if value is not None)
        header += name
    return Column(header, [_cell(value, unit) for value in values])


def _host(lines: Sequence[_Line]) -> Iterator[Column]:
    """Yield the column of host memory, in the first line of each row."""
    peaks = {id(row): row.peak_rss_bytes.value for row, _, _ in lines if row.peak_rss_bytes is not None}
    if not peaks:
        return
    unit, name = byte_unit(peak for peak in peaks.values() if peak is not None)
    cells = [_cell(peaks.get(id(row)), unit) for row, _, _ in lines]
    yield Column(f"host memory,\n{name}", _once(lines, cells))


def _once(lines: Sequence[_Line], cells: Sequence[str]) -> list[str]:
    """Return the cells; of lines of one row, the first alone has it."""
    firsts = {id(row): place for place, (row, _, _) in reversed(list(enumerate(lines)))}
    return [cell if firsts[id(lines[place][0])] == place else "" for place, cell in enumerate(cells)]


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
