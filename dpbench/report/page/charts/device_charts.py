"""Charts of what a step does with its devices: time by phase, memory, use, traffic, and the rounds along the run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from dpbench.analysis.answer import place
from dpbench.analysis.compare_variants import Comparison
from dpbench.analysis.counted import copies_by_link
from dpbench.analysis.phase_summary import MOVES, PhasePart, Work
from dpbench.cases.case import Case
from dpbench.records.count_record import CountRecord
from dpbench.records.readings import DeviceTelemetry
from dpbench.records.record import Outcome, Record
from dpbench.report.page.drawing import LABEL_ROOM, coloured, drawn, series, shaped, variant_colours
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.text.quantities import byte_unit, number

_COLOURS = {
    "scatter": series(7),
    "replicate": series(1),
    "parallel_apply": series(0),
    "gather": series(9),
    "loss": series(8),
    "forward": series(6),
    f"forward{MOVES}": "var(--c10)",
    "reduce": series(5),
    "backward": series(3),
    f"backward{MOVES}": "var(--c11)",
    "optimiser": series(4),
}
_LONGEST = 2.5
"""A bar of more than so many medians is cut, because it would squash the others."""
_CUT, _DISAGREES = " ▸", " ≠"


def phases(machine: MachineResults) -> Panel | None:
    rows = {comparison.setting.setting: _phase_rows(comparison) for comparison in machine.shown}
    used = {str(row["part"]) for own in rows.values() for row in own}
    colours = coloured("part", [(name, colour) for name, colour in _COLOURS.items() if name in used])
    columns = {"variant": "variant", "part": "phase", "work": "kind", "shown": "ms", "percent": "% of step"}
    title = "Where a step's time goes"
    return machine.panel("phases", title, _phases_text, columns=columns, rows=rows, colour=colours)


def _phases_text(every: Sequence[DataRow]) -> str:
    text = (
        "From extra steps after the timed ones, which may take longer than those. scatter, replicate, gather and "
        "reduce move data between devices; the rest computes. forward and backward are what is left of them."
    )
    if any(row["work"] == Work.BOTH for row in every):
        text += f' In "forward{MOVES}" and "backward{MOVES}" computing and moving overlap, and are not known apart.'
    if any(_DISAGREES in str(row["label"]) for row in every):
        text += " A bar with ≠ has a phase that took longer than the whole step, so it explains nothing."
    if any(_CUT in str(row["label"]) for row in every):
        text += f" A bar of more than {_LONGEST} times the median is cut, and its label has the whole time."
    return text


def _phase_rows(comparison: Comparison) -> list[DataRow]:
    of_rows = [(row.summary, row.summary.phases.parts(len(row.summary.case.devices))) for row in comparison.rows]
    totals = [sum(part.time_s for part in parts) for _, parts in of_rows if parts]
    if not totals:
        return []
    most_s = _LONGEST * median(totals)
    room = LABEL_ROOM * min(most_s, max(totals)) * 1e3
    return [
        {**row, "room": room}
        for summary, parts in of_rows
        for row in _bar(str(summary.case.variant), parts, most_s, _DISAGREES if summary.phases.disagreeing else "")
    ]


def _bar(variant: str, parts: Sequence[PhasePart], most_s: float, mark: str) -> Iterator[DataRow]:
    """The parts of a bar that ends at `most_s`. The first has the label of the bar, with its `mark`."""
    total_s = sum(part.time_s for part in parts)
    label: str = f"{number(total_s * 1e3)} ms{_CUT if total_s > most_s else ''}{mark}"
    end: float | None = min(total_s, most_s) * 1e3
    begin_s = 0.0
    for part in parts:
        end_s = begin_s + part.time_s
        yield {
            "variant": variant,
            "part": part.label,
            "work": str(part.work),
            "from": min(begin_s, most_s) * 1e3,
            "to": min(end_s, most_s) * 1e3,
            "shown": float(f"{part.time_s * 1e3:.3g}"),
            "percent": round(100 * part.time_s / total_s, 1) if total_s > 0 else 0.0,
            "end": end,
            "label": label,
        }
        begin_s, end, label = end_s, None, ""


def host_memory(machine: MachineResults) -> Panel | None:
    text = (
        "Each process's peak since it began, summed over the processes of a case. Memory that processes share counts "
        "in each of them."
    )
    columns = {"variant": "variant", "mib": "MiB"}
    return machine.panel("host-memory", "Host memory", text, columns=columns, rows=_host_rows)


def _host_rows(comparison: Comparison) -> Iterator[DataRow]:
    for summary in (row.summary for row in comparison.rows):
        peak = summary.peak_rss_bytes
        if peak is not None and peak.value is not None:
            yield {"variant": str(summary.case.variant), "mib": round(peak.value / 2**20, 1)}


@dataclass(frozen=True)
class DeviceMap:
    """The chart of a figure of `DeviceSummary` by variant and device, and a figure beside it in its table, in
    one unit.
    """

    id: str
    title: str
    text: str
    figure: str
    header: str
    unit: float = 1.0
    beside: str = ""
    beside_header: str = ""

    def __call__(self, machine: MachineResults) -> Panel | None:
        columns = {"variant": "variant", "device": "device", "value": self.header}
        columns |= {"beside": self.beside_header} if self.beside else {}
        return machine.panel(self.id, self.title, self.text, columns=columns, rows=self._rows, chart="by-device")

    def _rows(self, comparison: Comparison) -> Iterator[DataRow]:
        for row in comparison.rows:
            for device in row.summary.devices:
                value, beside = (device.value(name) if name else None for name in (self.figure, self.beside))
                if value is not None:
                    yield {
                        "variant": str(row.summary.case.variant),
                        "device": device.device,
                        "value": round(value / self.unit, 2),
                        "label": number(value / self.unit),
                        "beside": None if beside is None else round(beside / self.unit, 2),
                    }


DEVICE_MEMORY = DeviceMap(
    "device-memory",
    "Memory by device",
    "The most memory in tensors on each device during the samples, in MiB. The table has what the allocator reserved "
    "from the device too.",
    *("peak_device_bytes", "MiB allocated", 2.0**20, "peak_reserved_bytes", "MiB reserved"),
)
_BUSY = "How busy each device was"
_BUSY_SMS = DeviceMap(
    "busy",
    _BUSY,
    "The share of busy multiprocessors during the samples, in percent. A device that idles waits for others or for "
    "the host.",
    *("sm_busy_percent", "% of SMs busy", 1.0, "dram_bandwidth_percent", "% of memory bandwidth"),
)
_KERNEL_RUNNING = DeviceMap(
    "kernel",
    _BUSY,
    "The share of time in which any kernel ran, in percent. Many tiny kernels in a row make it 100.",
    *("kernel_running_percent", "% of time with a kernel"),
)
TRAFFIC = tuple(
    DeviceMap(
        link.lower(),
        f"Bytes over {link} by device",
        f"What each device sent over {link} in a step, in MB. The table has what it received.",
        *(f"{link.lower()}_sent_bytes_per_step", "MB sent a step", 1e6),
        *(f"{link.lower()}_received_bytes_per_step", "MB received a step"),
    )
    for link in ("NVLink", "PCIe")
)


def link_matrix(machine: MachineResults) -> Panel | None:
    counted = {
        f"{record.case.variant}: {place(record.case)}, {record.case.mode}, {record.case.dtype}": record
        for record in machine.counts
    }
    rows = {key: own for key, record in counted.items() if (own := list(_link_rows(record)))}
    if not rows:
        return None
    columns = {"source": "from", "target": "to", "shown": "bytes", "copies": "copies"}
    spec = drawn("links", columns)
    text = "What goes from each device to each other in one step. Counted exactly on simulated devices, not measured."
    labels = {key: key.replace("|", ", ") for key in rows}
    return Panel("link-matrix", "Bytes by link", text, columns, rows, spec, "counted", labels=labels)


def _link_rows(record: CountRecord) -> Iterator[DataRow]:
    copies, sizes = copies_by_link(record.counts) if record.counts else (None, None)
    for link, size in sorted((sizes or {}).items()):
        source, _, target = link.partition("->")
        if source != target:
            unit, name = byte_unit([size])
            shown = f"{number(size / unit)} {name}"
            sent = (copies or {}).get(link)
            yield {"source": source, "target": target, "mib": round(size / 2**20, 4), "shown": shown, "copies": sent}


_MOST_POINTS = 6000
_HEIGHT, _LOG_HEIGHT = 170, 300
_WIDE = 8
"""On a linear axis, values that differ more leave no room between the smaller ones."""


@dataclass(frozen=True)
class Along:
    """The chart of a GPU's reading in each round along the run; without a `reading`, of each round's median step."""

    id: str
    title: str
    text: str
    axis: str
    reading: str = ""
    zero: bool = True

    def __call__(self, machine: MachineResults) -> Panel | None:
        by_setting: dict[str, dict[Case, list[Record]]] = {}
        for record in machine.records:
            if record.outcome is Outcome.OK:
                for key in machine.settings_by_case.get(record.case, ()):
                    by_setting.setdefault(key, {}).setdefault(record.case, []).append(record)
        rows, text = {}, self.text
        for key in (key for key in machine.labels if key in by_setting):
            cases = list(by_setting[key].values())
            # Every nth record of each case leaves about as many dots as have room. All devices of a record stay.
            dots = sum(len(records) * len(self._values(records[0])) for records in cases)
            step = max(1, -(-dots * len(by_setting) // _MOST_POINTS))
            rows[key] = [row for records in cases for record in records[::step] for row in self._dots(record)]
            if step > 1:
                text = f"{self.text} There are too many dots, so only some are shown."
        rows = {key: own for key, own in rows.items() if len(own) > 1}
        columns = {"variant": "variant", "round": "round", "device": "device", "at": "began at", "value": self.axis}
        is_log = not self.reading and _is_wide(rows)
        look = {
            "axis": self.axis,
            "scale": {"type": "log", "nice": False, "padding": 12} if is_log else {"zero": self.zero, "nice": True},
            "colour": machine.colour(legend=True),
            "shape": shaped("variant", variant_colours(machine.variants)),
            "height": _LOG_HEIGHT if is_log else _HEIGHT,
        }
        return machine.panel(self.id, self.title, text, columns=columns, rows=rows, chart="along", **look)

    def _values(self, record: Record) -> list[tuple[str, float]]:
        if not self.reading:
            return [("all", median(record.step_times_s) * 1e3)]
        telemetry = (record.metrics.telemetry if record.metrics else None) or {}
        known = [(device, gpu) for device, gpu in telemetry.items() if isinstance(gpu, DeviceTelemetry)]
        values = [(device, getattr(gpu, self.reading).value) for device, gpu in known]
        return [(device, value) for device, value in values if value is not None]

    def _dots(self, record: Record) -> Iterator[DataRow]:
        at = datetime.fromisoformat(record.started_at).isoformat(timespec="seconds")
        for device, value in self._values(record):
            yield {
                "variant": str(record.case.variant),
                "round": record.round,
                "device": device,
                "at": at,
                "value": float(f"{value:.4g}"),
            }


def _is_wide(rows: Mapping[str, Sequence[DataRow]]) -> bool:
    """Whether the values of any setting differ by more than a linear axis shows."""
    values = [[float(str(row["value"])) for row in own] for own in rows.values()]
    return any(0 < _WIDE * min(own) < max(own) for own in values)


STEP_TIMES_ALONG = Along(
    "rounds",
    "Rounds along the run",
    "Each dot is one round: a fresh process's median step. Rounds that drift or jump together point to the machine, "
    "not to a variant.",
    "ms a step",
)
_DOTS = "Each dot is one GPU in one round"
_USE = ("GPU utilisation along the run", f"{_DOTS}, over the samples.")
_BUSY_SMS_ALONG = Along("along-busy", *_USE, "% of SMs busy", "sm_busy_percent")
_KERNEL_RUNNING_ALONG = Along("along-kernel", *_USE, "% of time with a kernel", "kernel_running_percent")
_CLOCK_ALONG = Along(
    "along-clock",
    "GPU clock along the run",
    f"{_DOTS}. A clock that falls along the run says that power or heat limits it.",
    *("MHz", "sm_clock_mhz", False),
)
_POWER_ALONG = Along("along-power", "GPU power along the run", f"{_DOTS}, on average over the samples.", "W", "power_w")


def _use(machine: MachineResults) -> Panel | None:
    """Busy multiprocessors, or time with a kernel if no device reports the former."""
    return _BUSY_SMS(machine) or _KERNEL_RUNNING(machine)


def _use_along(machine: MachineResults) -> Panel | None:
    return _BUSY_SMS_ALONG(machine) or _KERNEL_RUNNING_ALONG(machine)


DOING = (_use, STEP_TIMES_ALONG, _use_along, _CLOCK_ALONG, _POWER_ALONG)
