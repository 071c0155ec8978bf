"""Every round along the run: its step time, and how busy, how fast and how hungry each GPU was."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import chart, coloured, number_axis, shaped, tooltip, variant_colours
from dpbench.results.readings import DeviceTelemetry
from dpbench.results.record import Outcome, Record
from dpbench.sweep.case import Case

_MOST_POINTS = 6000
_HEIGHT, _LOG_HEIGHT = 170, 300
_WIDE = 8
"""On a linear axis, values that differ more leave no room between the smaller ones."""
_CLOCK = dict.fromkeys(("hours", "minutes"), "%H:%M") | {"seconds": "%H:%M:%S", "milliseconds": "%H:%M:%S"}
"""Vega's own format of a time has twelve hours."""


@dataclass(frozen=True)
class _Series:
    """What is drawn: `values` yields pairs of device and value of a record."""

    id: str
    title: str
    text: str
    axis: str
    values: Callable[[Record], Iterator[tuple[str, float]]]
    zero: bool = True
    may_be_log: bool = False


def step_times_along(found: MachineResults) -> Panel | None:
    """Return each round's median step time; None without records."""
    return _along(
        found,
        _Series(
            "rounds",
            "Rounds along the run",
            "Each dot is one round: a fresh process's median step. Rounds that drift or jump together point to the "
            "machine, not to a variant.",
            "ms a step",
            lambda record: iter([("all", median(record.step_times_s) * 1e3)]),
            may_be_log=True,
        ),
    )


def use_along(found: MachineResults) -> Panel | None:
    """Return the share of busy multiprocessors, or of time with a kernel."""
    text = "Each dot is one GPU in one round, over the samples."
    title = "GPU utilisation along the run"
    busy = _Series("along-busy", title, text, "% of SMs busy", _telemetry("sm_busy_percent"))
    kernel = _Series("along-kernel", title, text, "% of time with a kernel", _telemetry("kernel_running_percent"))
    return _along(found, busy) or _along(found, kernel)


def clock_along(found: MachineResults) -> Panel | None:
    """Return the GPUs' clocks."""
    text = "Each dot is one GPU in one round. A clock that falls along the run says that power or heat limits it."
    series = _Series("along-clock", "GPU clock along the run", text, "MHz", _telemetry("sm_clock_mhz"), zero=False)
    return _along(found, series)


def power_along(found: MachineResults) -> Panel | None:
    """Return the GPUs' power."""
    text = "Each dot is one GPU in one round, on average over the samples."
    return _along(found, _Series("along-power", "GPU power along the run", text, "W", _telemetry("power_w")))


def _along(found: MachineResults, series: _Series) -> Panel | None:
    records: dict[str, dict[Case, list[Record]]] = {}
    for record in found.records:
        if record.outcome is Outcome.OK:
            for key in found.settings_by_case.get(record.case, ()):
                records.setdefault(key, {}).setdefault(record.case, []).append(record)
    steps = {key: _step(own.values(), series, _MOST_POINTS // len(records)) for key, own in records.items()}
    is_thinned = any(step > 1 for step in steps.values())
    rows = {
        key: [row for of_case in own.values() for record in of_case[:: steps[key]] for row in _rows(record, series)]
        for key, own in records.items()
    }
    rows = {key: rows[key] for key in found.labels if len(rows.get(key, ())) > 1}
    if not rows:
        return None
    colours = variant_colours(found.variants)
    is_log = series.may_be_log and _is_wide(rows)
    encoding = {
        "x": {
            "field": "at",
            "type": "temporal",
            "title": "time of the round (UTC)",
            "scale": {"type": "utc"},
            "axis": {"grid": False, "format": _CLOCK},
        },
        "y": number_axis("value", series.axis, log=is_log, zero=series.zero),
        "color": coloured("variant", colours),
        "shape": shaped("variant", colours),
        "tooltip": tooltip(("variant", "variant"), ("device", "device"), ("round", "round"), ("value", series.axis)),
    }
    spec = chart(
        {"mark": {"type": "point", "size": 45, "opacity": 0.85}, "encoding": encoding},
        height=_LOG_HEIGHT if is_log else _HEIGHT,
    )
    columns = (
        Shown("variant", "variant"),
        Shown("round", "round"),
        Shown("device", "device"),
        Shown("at", "began at"),
        Shown("value", series.axis),
    )
    text = f"{series.text} There are too many dots, so only some are shown." if is_thinned else series.text
    return Panel(series.id, series.title, text, columns, rows, spec, "setting", found.first, found.labels)


def _is_wide(rows: Mapping[str, Sequence[DataRow]]) -> bool:
    """Return whether the values of any setting differ by more than a linear axis shows."""
    values = [[float(str(row["value"])) for row in own] for own in rows.values()]
    return any(0 < _WIDE * min(own) < max(own) for own in values)


def _step(records: Iterable[Sequence[Record]], series: _Series, most: int) -> int:
    """Return n if every nth record of each case leaves about `most` dots. All rounds of a record's devices stay."""
    dots = sum(len(own) * len(list(series.values(own[0]))) for own in records)
    return max(1, -(-dots // most))


def _rows(record: Record, series: _Series) -> Iterator[DataRow]:
    at = datetime.fromisoformat(record.started_at).isoformat(timespec="seconds")
    for device, value in series.values(record):
        yield {
            "variant": str(record.case.variant),
            "round": record.round,
            "device": device,
            "at": at,
            "value": float(f"{value:.4g}"),
        }


def _telemetry(name: str) -> Callable[[Record], Iterator[tuple[str, float]]]:
    def values(record: Record) -> Iterator[tuple[str, float]]:
        telemetry = (record.metrics.telemetry if record.metrics else None) or {}
        for device, found in telemetry.items():
            value = getattr(found, name).value if isinstance(found, DeviceTelemetry) else None
            if value is not None:
                yield device, value

    return values
