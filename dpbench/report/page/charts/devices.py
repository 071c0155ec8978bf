"""Charts of what a step does with its devices: time by phase, memory, use, and the rounds along the run."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from dpbench.analysis.compare import Comparison
from dpbench.analysis.phases import MOVES, PhasePart, Work
from dpbench.cases.case import Case
from dpbench.records.readings import DeviceTelemetry
from dpbench.records.record import Outcome, Record
from dpbench.report.page.drawing import (
    LABEL_ROOM,
    bar_labels,
    bars,
    cells,
    chart,
    layer,
    names_axis,
    number_axis,
    row_step,
    rows_of,
    strength,
)
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.report.page.theme import PAPER, coloured, series, shaped, variant_colours
from dpbench.text.quantities import number

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


def phases(machine_results: MachineResults) -> Panel | None:
    """Return a step's time by phase for each variant; None if no variant has phases."""
    rows = {each.setting.setting: _phase_rows(each) for each in machine_results.shown}
    used = {str(row["part"]) for own in rows.values() for row in own}
    colours = coloured("part", [(name, colour) for name, colour in _COLOURS.items() if name in used])
    columns = {"variant": "variant", "part": "phase", "work": "kind", "shown": "ms", "percent": "% of step"}
    look = {"height": {"band": 0.72}, "stroke": PAPER, "strokeWidth": 0.5}
    x, height = number_axis("from", "ms of a step, by phase"), row_step(machine_results.variants)
    spec = bars(x, colours, columns, height, *bar_labels("end"), x2="to", look=look)
    return machine_results.panel(
        "phases", "Where a step's time goes", _phases_text, columns=columns, rows=rows, spec=spec
    )


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
    parts = [(row.summary, row.summary.phases.parts(len(row.summary.case.devices))) for row in comparison.rows]
    totals = [sum(part.time_s for part in own) for _, own in parts if own]
    if not totals:
        return []
    most_s = _LONGEST * median(totals)
    room = LABEL_ROOM * min(most_s, max(totals)) * 1e3
    bars: list[DataRow] = []
    for summary, own in parts:
        disagrees = summary.phases.disagreeing
        bars += _bar(str(summary.case.variant), own, most_s, _DISAGREES if disagrees else "")
    return [{**row, "room": room} for row in bars]


def _bar(variant: str, parts: Sequence[PhasePart], most_s: float, mark: str) -> Iterator[DataRow]:
    """Yield the parts of a bar that ends at `most_s`. The first has the label of the bar, with its `mark`."""
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


def host_memory(machine_results: MachineResults) -> Panel | None:
    """Return the most host memory of each variant; None if there is none."""
    text = (
        "Each process's peak since it began, summed over the processes of a case. Memory that processes share counts "
        "in each of them."
    )
    colour = coloured("variant", variant_colours(machine_results.variants), legend=False)
    columns, x = {"variant": "variant", "mib": "MiB"}, number_axis("mib", "MiB of host memory")
    spec = bars(x, colour, columns, row_step(machine_results.variants))
    return machine_results.panel("host-memory", "Host memory", text, columns=columns, rows=_host_rows, spec=spec)


def _host_rows(comparison: Comparison) -> Iterator[DataRow]:
    for summary in (row.summary for row in comparison.rows):
        peak = None if summary.peak_rss_bytes is None else summary.peak_rss_bytes.value
        if peak is not None:
            yield {"variant": str(summary.case.variant), "mib": round(peak / 2**20, 1)}


@dataclass(frozen=True)
class _Figure:
    """A figure of `DeviceSummary` and its header; a second one beside it in tooltip and table; both in one unit."""

    id: str
    title: str
    text: str
    name: str
    header: str
    unit: float = 1.0
    beside: str | None = None
    beside_header: str = ""


def device_memory(machine_results: MachineResults) -> Panel | None:
    """Return the allocators' peaks; None if no device reports one."""
    text = (
        "The most memory in tensors on each device during the samples, in MiB. The table has what the allocator "
        "reserved from the device too."
    )
    peaks = ("peak_device_bytes", "MiB allocated", 2.0**20, "peak_reserved_bytes", "MiB reserved")
    return _map(machine_results, _Figure("device-memory", "Memory by device", text, *peaks))


def device_use(machine_results: MachineResults) -> Panel | None:
    """Return the share of busy multiprocessors, or of time with a kernel if no device reports the former."""
    title = "How busy each device was"
    busy = (
        "The share of busy multiprocessors during the samples, in percent. A device that idles waits for others or for "
        "the host."
    )
    kernel = "The share of time in which any kernel ran, in percent. Many tiny kernels in a row make it 100."
    shares = ("sm_busy_percent", "% of SMs busy", 1.0, "dram_bandwidth_percent", "% of memory bandwidth")
    return _map(machine_results, _Figure("busy", title, busy, *shares)) or _map(
        machine_results, _Figure("kernel", title, kernel, "kernel_running_percent", "% of time with a kernel")
    )


def nvlink_bytes(machine_results: MachineResults) -> Panel | None:
    """Return the bytes over NVLink; None if no device reports them."""
    return _map(machine_results, _traffic("NVLink"))


def pcie_bytes(machine_results: MachineResults) -> Panel | None:
    """Return the bytes over PCIe; None if no device reports them."""
    return _map(machine_results, _traffic("PCIe"))


def _traffic(link: str) -> _Figure:
    name = link.lower()
    sent, received = f"{name}_sent_bytes_per_step", f"{name}_received_bytes_per_step"
    text = f"What each device sent over {link} in a step, in MB. The table has what it received."
    return _Figure(
        name, f"Bytes over {link} by device", text, sent, "MB sent a step", 1e6, received, "MB received a step"
    )


def _map(machine_results: MachineResults, figure: _Figure) -> Panel | None:
    columns = {"variant": "variant", "device": "device", "value": figure.header}
    if figure.beside is not None:
        columns["beside"] = figure.beside_header
    x = names_axis("device", orient="top", labelOverlap="greedy")
    spec = cells(
        x, rows_of(), {"text": "label"}, columns, px=34, look={"color": series(0)}, fillOpacity=strength("value")
    )

    def rows(comparison: Comparison) -> Iterator[DataRow]:
        return _device_rows(comparison, figure)

    return machine_results.panel(figure.id, figure.title, figure.text, columns=columns, rows=rows, spec=spec)


def _device_rows(comparison: Comparison, figure: _Figure) -> Iterator[DataRow]:
    for summary in (row.summary for row in comparison.rows):
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


_MOST_POINTS = 6000
_HEIGHT, _LOG_HEIGHT = 170, 300
_WIDE = 8
"""On a linear axis, values that differ more leave no room between the smaller ones."""
_CLOCK = dict.fromkeys(("hours", "minutes"), "%H:%M") | {"seconds": "%H:%M:%S", "milliseconds": "%H:%M:%S"}
"""Vega's own format of a time has twelve hours."""
_Values = Callable[[Record], Iterator[tuple[str, float]]]
"""Yields pairs of device and value of a record."""


def step_times_along(machine_results: MachineResults) -> Panel | None:
    """Return each round's median step time; None without records."""
    text = (
        "Each dot is one round: a fresh process's median step. Rounds that drift or jump together point to the "
        "machine, not to a variant."
    )

    def values(record: Record) -> Iterator[tuple[str, float]]:
        yield "all", median(record.step_times_s) * 1e3

    return _along(
        machine_results, "rounds", "Rounds along the run", text, axis="ms a step", values=values, may_be_log=True
    )


def use_along(machine_results: MachineResults) -> Panel | None:
    """Return the share of busy multiprocessors, or of time with a kernel."""
    title, text = "GPU utilisation along the run", "Each dot is one GPU in one round, over the samples."
    busy, kernel = _telemetry("sm_busy_percent"), _telemetry("kernel_running_percent")
    return _along(machine_results, "along-busy", title, text, axis="% of SMs busy", values=busy) or _along(
        machine_results, "along-kernel", title, text, axis="% of time with a kernel", values=kernel
    )


def clock_along(machine_results: MachineResults) -> Panel | None:
    """Return the GPUs' clocks."""
    title = "GPU clock along the run"
    text = "Each dot is one GPU in one round. A clock that falls along the run says that power or heat limits it."
    return _along(
        machine_results, "along-clock", title, text, axis="MHz", values=_telemetry("sm_clock_mhz"), zero=False
    )


def power_along(machine_results: MachineResults) -> Panel | None:
    """Return the GPUs' power."""
    text = "Each dot is one GPU in one round, on average over the samples."
    return _along(
        machine_results, "along-power", "GPU power along the run", text, axis="W", values=_telemetry("power_w")
    )


def _along(
    machine_results: MachineResults,
    name: str,
    title: str,
    text: str,
    *,
    axis: str,
    values: _Values,
    zero: bool = True,
    may_be_log: bool = False,
) -> Panel | None:
    records: dict[str, dict[Case, list[Record]]] = {}
    for record in machine_results.records:
        if record.outcome is Outcome.OK:
            for key in machine_results.settings_by_case.get(record.case, ()):
                records.setdefault(key, {}).setdefault(record.case, []).append(record)
    steps = {key: _step(own.values(), values, _MOST_POINTS // len(records)) for key, own in records.items()}
    rows = {
        key: [row for of_case in own.values() for record in of_case[:: steps[key]] for row in _dots(record, values)]
        for key, own in records.items()
    }
    rows = {key: rows[key] for key in machine_results.labels if len(rows.get(key, ())) > 1}
    colours = variant_colours(machine_results.variants)
    columns = {"variant": "variant", "round": "round", "device": "device", "at": "began at", "value": axis}
    time = {"title": "time of the round (UTC)", "scale": {"type": "utc"}, "axis": {"grid": False, "format": _CLOCK}}
    is_log = may_be_log and _is_wide(rows)
    dots = layer(
        "point",
        {"size": 45, "opacity": 0.85},
        x={"field": "at", "type": "temporal", **time},
        y=number_axis("value", axis, log=is_log, zero=zero),
        color=coloured("variant", colours),
        shape=shaped("variant", colours),
        columns=columns,
    )
    if any(step > 1 for step in steps.values()):
        text += " There are too many dots, so only some are shown."
    return machine_results.panel(
        name, title, text, columns=columns, rows=rows, spec=chart(dots, height=_LOG_HEIGHT if is_log else _HEIGHT)
    )


def _is_wide(rows: Mapping[str, Sequence[DataRow]]) -> bool:
    """Return whether the values of any setting differ by more than a linear axis shows."""
    values = [[float(str(row["value"])) for row in own] for own in rows.values()]
    return any(0 < _WIDE * min(own) < max(own) for own in values)


def _step(records: Iterable[Sequence[Record]], values: _Values, most: int) -> int:
    """Return n if every nth record of each case leaves about `most` dots. All rounds of a record's devices stay."""
    dots = sum(len(own) * len(list(values(own[0]))) for own in records)
    return max(1, -(-dots // most))


def _dots(record: Record, values: _Values) -> Iterator[DataRow]:
    at = datetime.fromisoformat(record.started_at).isoformat(timespec="seconds")
    for device, value in values(record):
        yield {
            "variant": str(record.case.variant),
            "round": record.round,
            "device": device,
            "at": at,
            "value": float(f"{value:.4g}"),
        }


def _telemetry(name: str) -> _Values:
    def values(record: Record) -> Iterator[tuple[str, float]]:
        telemetry = (record.metrics.telemetry if record.metrics else None) or {}
        for device, found in telemetry.items():
            value = getattr(found, name).value if isinstance(found, DeviceTelemetry) else None
            if value is not None:
                yield device, value

    return values
