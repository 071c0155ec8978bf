"""The ladder as a table and as JSON: one device, several, one process for each, several machines."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType

from dpbench.report.ladder import Ladder, Rung
from dpbench.report.units import number, time_unit
from dpbench.report.wide_table import NONE, Column, WideTable, folded
from dpbench.sweep.devices import short_devices

LADDER_LEGEND = (
    "ladder: lanes are those of each machine. Devices counts different devices of all machines; lanes that share one "
    "count once. "
    "Scaling eff., efficiency: items/s over those of as many single devices. "
    "Skew: from the fastest to the slowest rank or machine of a step; a machine is as late as its slowest rank."
)


def ladder_parts(found: Iterable[Ladder]) -> Iterator[RenderableType]:
    """Yield a table for each ladder."""
    for ladder in found:
        yield _table(ladder)


def _table(ladder: Ladder) -> WideTable:
    rungs, case = ladder.rungs, ladder.one_device
    machines = [str(rung.summary.case.machines) for rung in rungs]
    skews_s = [skew for rung in rungs for skew in (rung.rank_skew_s, rung.machine_skew_s) if skew]
    unit_s, unit = time_unit(skews_s)
    keys = [
        Column("variant", [folded(rung.summary.case.variant) for rung in rungs]),
        Column("lanes", [short_devices(rung.summary.case.lanes_of_a_machine) for rung in rungs]),
    ]
    columns = [
        Column("machines", machines if set(machines) != {"1"} else [NONE] * len(rungs)),
        Column("devices", [str(rung.devices) for rung in rungs]),
        Column("items/s", [_rate(rung) for rung in rungs]),
        Column("scaling\neff., %", [_number(rung.efficiency_percent) for rung in rungs]),
        Column("% of\nlimit", [_number(rung.percent_of_limit) for rung in rungs]),
        Column(f"skew, {unit}\nranks", [_number(rung.rank_skew_s, unit_s) for rung in rungs]),
        Column(f"skew, {unit}\nmachines", [_number(rung.machine_skew_s, unit_s) for rung in rungs]),
    ]
    columns = [column for column in columns if set(column.cells) != {NONE}]
    title = f"ladder: {case.workload}, batch {case.batch}, {case.mode}, {case.dtype}, {case.data} data"
    steps = "" if case.steps_per_sample == 1 else f", {case.steps_per_sample} steps per sample"
    return WideTable(f"{title}{steps}", keys, columns)


def _rate(rung: Rung) -> str:
    summary = rung.summary
    return summary.outcome.replace("_", " ") if summary.items_per_s is None else number(summary.items_per_s)


def _number(value: float | None, unit: float = 1.0) -> str:
    return NONE if value is None else number(value / unit)


def ladders_json(found: Iterable[Ladder]) -> list[dict[str, Any]]:
    """Return an object for each ladder. Fields that do not apply are None."""
    return [
        {
            **ladder.one_device.model_dump(
                mode="json", include={"workload", "batch", "mode", "dtype", "data", "threads", "steps_per_sample"}
            ),
            "one_device": ladder.one_device.id,
            "rungs": [_rung_json(rung) for rung in ladder.rungs],
        }
        for ladder in found
    ]


def _rung_json(rung: Rung) -> dict[str, Any]:
    case = rung.summary.case
    return {
        "id": case.id,
        "variant": str(case.variant),
        "outcome": str(rung.summary.outcome),
        "machines": case.machines,
        "lanes": len(case.devices),
        "devices": rung.devices,
        "items_per_s": rung.summary.items_per_s,
        "scaling_efficiency_percent": rung.efficiency_percent,
        "percent_of_limit": rung.percent_of_limit,
        "rank_skew_s": rung.rank_skew_s,
        "machine_skew_s": rung.machine_skew_s,
    }
