"""The ladder: one device, several devices, one process for each, several machines; as a table and as JSON. Pure.

A comparison holds the cases of one device list. A ladder holds those of all device lists and machines that have the
same one-device case: workload, global batch, mode, dtype, data, threads and seed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.cases.case import Case, on_one_device
from dpbench.cases.devices import short_devices
from dpbench.cases.variants import VariantName
from dpbench.records.compare import Comparison, Comparisons, Row
from dpbench.records.summary import Summary
from dpbench.report.table import Column, Table, folded
from dpbench.text.quantities import number, time_unit


@dataclass(frozen=True)
class Rung:
    """A case on the ladder. What does not apply, or was not measured, is None.

    `devices` are different ones, over all machines; lanes that share a device count once. `efficiency_percent` is the
    throughput over that of `devices` times one device with the whole batch. `percent_of_limit` is the comparison's.
    """

    summary: Summary
    devices: int
    efficiency_percent: float | None
    percent_of_limit: float | None

    @property
    def rank_skew_s(self) -> float | None:
        """Seconds from the fastest to the slowest rank in a step; None without ranks."""
        skew = self.summary.phases.skew_s if self.summary.phases else None
        return None if skew is None else skew.value

    @property
    def machine_skew_s(self) -> float | None:
        """Seconds from the fastest to the slowest machine in a step; None with one machine."""
        skew = self.summary.phases.machine_skew_s if self.summary.phases else None
        return None if skew is None else skew.value


@dataclass(frozen=True)
class Ladder:
    """The rungs, from few machines and devices to many. `one_device` is `single` with the whole batch."""

    one_device: Case
    rungs: tuple[Rung, ...]


def ladders(comparisons: Comparisons) -> tuple[Ladder, ...]:
    """Return the ladders of comparisons, each with at least one measured case.

    A setting in which one process has all devices, alone on its device list, makes no ladder: its comparison has it.
    """
    of_one_device: dict[Case, list[Comparison]] = {}
    for comparison in comparisons.comparisons:
        of_one_device.setdefault(on_one_device(comparison.setting), []).append(comparison)
    made = [_ladder(one_device, each) for one_device, each in of_one_device.items() if _is_ladder(each)]
    return tuple(each for each in made if any(rung.summary.step_time_s for rung in each.rungs))


def _is_ladder(comparisons: Sequence[Comparison]) -> bool:
    return len(comparisons) > 1 or any(row.summary.case.variant.is_per_rank for row in comparisons[0].rows)


def _ladder(one_device: Case, comparisons: Iterable[Comparison]) -> Ladder:
    rows = {row.summary.case: row for comparison in comparisons for row in comparison.rows}
    single = rows[one_device].summary if one_device in rows else None
    rungs = [_rung(row, single) for row in rows.values()]
    return Ladder(one_device, tuple(sorted(rungs, key=_place)))


def _rung(row: Row, single: Summary | None) -> Rung:
    case, efficiency = row.summary.case, None
    devices = len(set(case.lanes_of_a_machine)) * case.machines
    rate, single_rate = row.summary.items_per_s, None if single is None else single.items_per_s
    if rate is not None and single_rate is not None:
        efficiency = 100 * rate / (devices * single_rate)
    # One device is a row of several comparisons, each with another limit.
    percent_of_limit = None if case.variant.name is VariantName.SINGLE else row.percent_of_limit
    return Rung(row.summary, devices, efficiency, percent_of_limit)


def _place(rung: Rung) -> tuple[object, ...]:
    case = rung.summary.case
    return case.machines, rung.devices, len(case.devices), case.devices, case.variant.order


LADDER_LEGEND = (
    "ladder: lanes are those of each machine. Devices counts different devices of all machines; lanes that share one "
    "count once. "
    "Scaling eff., efficiency: items/s over those of as many single devices. "
    "Skew: from the fastest to the slowest rank or machine of a step; a machine is as late as its slowest rank."
)


def ladder_table(ladder: Ladder) -> Table:
    rungs, case = ladder.rungs, ladder.one_device
    unit_s, unit = time_unit(skew for rung in rungs for skew in (rung.rank_skew_s, rung.machine_skew_s) if skew)
    several = any(rung.summary.case.machines > 1 for rung in rungs)

    def rate(rung: Rung) -> str | float:
        summary = rung.summary
        return summary.outcome.replace("_", " ") if summary.items_per_s is None else summary.items_per_s

    def in_unit(skew_s: float) -> str:
        return number(skew_s / unit_s)

    columns = [
        Column("variant", lambda rung: folded(rung.summary.case.variant)),
        Column("lanes", lambda rung: short_devices(rung.summary.case.lanes_of_a_machine)),
        Column("machines", lambda rung: rung.summary.case.machines if several else None),
        Column("devices", lambda rung: rung.devices),
        Column("items/s", rate),
        Column("scaling\neff., %", lambda rung: rung.efficiency_percent),
        Column("% of\nlimit", lambda rung: rung.percent_of_limit),
        Column(f"skew, {unit}\nranks", lambda rung: rung.rank_skew_s, in_unit),
        Column(f"skew, {unit}\nmachines", lambda rung: rung.machine_skew_s, in_unit),
    ]
    title = f"ladder: {case.workload}, batch {case.batch}, {case.mode}, {case.dtype}, {case.data} data"
    steps = "" if case.steps_per_sample == 1 else f", {case.steps_per_sample} steps per sample"
    return Table(f"{title}{steps}", columns, rungs, keys=2).without_empty_columns()


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
