"""Maps of variant x device: memory, how busy each device was, and its bytes over links."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import INK, PAPER, chart, rows_of, series, tooltip
from dpbench.report.units import number
from dpbench.results.compare import Comparison

_CELL_PX = 34


@dataclass(frozen=True)
class _Figure:
    """A figure of `DeviceSummary`, its size in the unit that is shown, and a second one for tooltip and table."""

    id: str
    title: str
    text: str
    name: str
    header: str
    unit: float = 1.0
    beside: str | None = None
    beside_header: str = ""


_MEMORY = _Figure(
    "device-memory",
    "Memory by device",
    "The most memory in tensors on each device during the samples, in MiB. The table has what the allocator reserved "
    "from the device too.",
    name="peak_device_bytes",
    header="MiB allocated",
    unit=2.0**20,
    beside="peak_reserved_bytes",
    beside_header="MiB reserved",
)
_BUSY = _Figure(
    "busy",
    "How busy each device was",
    "The share of busy multiprocessors during the samples, in percent. A device that idles waits for others or for the "
    "host.",
    name="sm_busy_percent",
    header="% of SMs busy",
    unit=1.0,
    beside="dram_bandwidth_percent",
    beside_header="% of memory bandwidth",
)
_KERNEL = _Figure(
    "kernel",
    "How busy each device was",
    "The share of time in which any kernel ran, in percent. Many tiny kernels in a row make it 100.",
    name="kernel_running_percent",
    header="% of time with a kernel",
)
_NVLINK = _Figure(
    "nvlink",
    "Bytes over NVLink by device",
    "What each device sent over NVLink in a step, in MB. The table has what it received.",
    name="nvlink_sent_bytes_per_step",
    header="MB sent a step",
    unit=1e6,
    beside="nvlink_received_bytes_per_step",
    beside_header="MB received a step",
)
_PCIE = _Figure(
    "pcie",
    "Bytes over PCIe by device",
    "What each device sent over PCIe in a step, in MB. The table has what it received.",
    name="pcie_sent_bytes_per_step",
    header="MB sent a step",
    unit=1e6,
    beside="pcie_received_bytes_per_step",
    beside_header="MB received a step",
)


def device_memory(found: MachineResults) -> Panel | None:
    """Return the allocators' peaks; None if no device reports one."""
    return _map(found, _MEMORY)


def device_use(found: MachineResults) -> Panel | None:
    """Return the share of busy multiprocessors, or of time with a kernel if no device reports the former."""
    return _map(found, _BUSY) or _map(found, _KERNEL)


def nvlink_bytes(found: MachineResults) -> Panel | None:
    """Return the bytes over NVLink; None if no device reports them."""
    return _map(found, _NVLINK)


def pcie_bytes(found: MachineResults) -> Panel | None:
    """Return the bytes over PCIe; None if no device reports them."""
    return _map(found, _PCIE)


def _map(found: MachineResults, figure: _Figure) -> Panel | None:
    rows = {each.setting.setting: own for each in found.shown if (own := list(_rows(each, figure)))}
    if not rows:
        return None
    place = {
        "y": rows_of("variant"),
        "x": {"field": "device", "type": "nominal", "sort": None, "title": None, "axis": _AXIS},
    }
    strength = {"field": "value", "type": "quantitative", "scale": {"range": [0.06, 0.5], "zero": True}, "legend": None}
    tip = tooltip(("variant", "variant"), ("device", "device"), ("value", figure.header))
    columns = [Shown("variant", "variant"), Shown("device", "device"), Shown("value", figure.header)]
    if figure.beside is not None:
        columns.append(Shown("beside", figure.beside_header))
        tip += tooltip(("beside", figure.beside_header))
    spec = chart(
        {
            "mark": {"type": "rect", "color": series(0), "stroke": PAPER, "strokeWidth": 2, "cornerRadius": 4},
            "encoding": {**place, "fillOpacity": strength, "tooltip": tip},
        },
        {"mark": {"type": "text", "color": INK}, "encoding": {**place, "text": {"field": "label"}}},
        height={"step": _CELL_PX},
    )
    return Panel(figure.id, figure.title, figure.text, columns, rows, spec, "setting", found.first, found.labels)


_AXIS = {"labelAngle": 0, "ticks": False, "domain": False, "orient": "top", "labelOverlap": "greedy"}


def _rows(found: Comparison, figure: _Figure) -> Iterator[DataRow]:
    for summary in (row.summary for row in found.rows):
        for device in summary.devices:
            value = device.value(figure.name)
            if value is not None:
                beside = None if figure.beside is None else device.value(figure.beside)
                yield {
                    "variant": str(summary.case.variant),
                    "device": device.device,
                    "value": round(value / figure.unit, 2),
                    "label": number(value / figure.unit),
                    "beside": None if beside is None else round(beside / figure.unit, 2),
                }
