"""Projected step times with their intervals, beside what was measured."""

from collections.abc import Sequence

from dpbench.analysis.summary import Summary
from dpbench.cases.variants import VariantName
from dpbench.report.page.drawing import intervals, number_axis, row_step, rows_of
from dpbench.report.page.inputs import ProjectedMachine, ProjectedShare, ProjectedVariant
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.report.page.theme import coloured, series
from dpbench.text.quantities import number

_LEAST_SHARE = 0.05
COMMON_ERROR = "Variants share a part of that error, so an order may be sure although lines overlap."
SINGLE_IS_A_SHARE = "single is one device with its share of the batch, not the whole batch."
_PROJECTED, _MEASURED = "projected", "measured"


def projections(projected_machines: Sequence[ProjectedMachine], measured: Sequence[MachineResults]) -> Panel | None:
    """Return the projections of each machine; None without any.

    Measured times of the same workload and batch are drawn below each variant; not those of `single`, whose batch is a
    share here.
    """
    rows: dict[str, list[DataRow]] = {}
    labels = {}
    for projected in projected_machines:
        key = f"{projected.machine}|{projected.workload}|{projected.batch}|{projected.math}"
        rows[key] = _rows(projected, measured)
        labels[key] = f"{projected.machine}: {projected.workload}, batch {projected.batch}, {projected.math} math"
    every = [row for own in rows.values() for row in own]
    if not every:
        return None
    columns = {"variant": "variant", "kind": "time", "shown": "ms a step [interval]", "speed_up": "speed-up"}
    columns |= {"bound": "bound by", "reason": "reason"}
    colour = coloured("kind", [(_PROJECTED, series(4)), (_MEASURED, series(0))])
    height = row_step(row["row"] for row in every)
    spec = intervals(number_axis("ms", "ms a step"), colour, columns, height, rows_of("row"), one=False)
    text = (
        "Projected times are computed from a description of the machine, not measured on it. Their line is an "
        "interval: how far published steps are from their sums. "
        f"{COMMON_ERROR} {SINGLE_IS_A_SHARE}"
    )
    if any(row["kind"] == _MEASURED for row in every):
        text += " Measured times have their 95 % interval. They are of this page's machines, which may be other ones."
    return Panel("projections", "Projected step times", text, columns, rows, spec, "projection", labels=labels)


def _rows(machine: ProjectedMachine, measured: Sequence[MachineResults]) -> list[DataRow]:
    rows: list[DataRow] = []
    for variant in machine.variants:
        rows.append(_projected(variant))
        rows += [
            _measured(summary)
            for results in measured
            for summary in results.summaries
            if summary.step_time_s is not None
            and str(summary.case.variant) == variant.variant
            and summary.case.variant.name is not VariantName.SINGLE
            and (summary.case.workload, summary.case.batch) == (machine.workload, machine.batch)
        ]
    return rows


def _projected(projected_variant: ProjectedVariant) -> DataRow:
    time = projected_variant.step_time_s
    bound = [_bound(each) for each in projected_variant.bound_by if each.share >= _LEAST_SHARE]
    return {
        "row": projected_variant.variant,
        "variant": projected_variant.variant,
        "kind": _PROJECTED,
        **_times(*((None, None, None) if time is None else (time.mid, time.low, time.high))),
        "speed_up": "-" if projected_variant.speed_up is None else number(projected_variant.speed_up.mid),
        "bound": ", ".join(bound[:3]) or "-",
        "reason": projected_variant.reason or "",
    }


def _bound(found: ProjectedShare) -> str:
    """Return the part, and its share if older projections have several."""
    return found.part if found.share == 1 else f"{found.part} {found.share:.0%}"


def _measured(summary: Summary) -> DataRow:
    assert summary.step_time_s is not None
    time, nothing = summary.step_time_s, {"speed_up": "-", "bound": "-", "reason": ""}
    ends = (time.value if end is None else end for end in (time.low, time.high))
    name = str(summary.case.variant)
    return {"row": f"{name}, measured", "variant": name, "kind": _MEASURED, **_times(time.value, *ends), **nothing}


def _times(mid_s: float | None, low_s: float | None, high_s: float | None) -> DataRow:
    if mid_s is None or low_s is None or high_s is None:
        return {"ms": None, "low": None, "high": None, "shown": "-"}
    mid, low, high = (each * 1e3 for each in (mid_s, low_s, high_s))
    return {"ms": mid, "low": low, "high": high, "shown": f"{number(mid)} [{number(low)}, {number(high)}]"}
