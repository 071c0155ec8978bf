"""Projected step times with their intervals, beside what was measured."""

from collections.abc import Iterator, Sequence

from dpbench.cases.variants import VariantName
from dpbench.report.page.drawing import coloured, drawn, row_step, rows_of, series
from dpbench.report.page.inputs import ProjectedMachine, ProjectedShare, ProjectedVariant
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.stats.estimate import Estimate
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
    rows, labels = dict[str, list[DataRow]](), dict[str, str]()
    for projected in projected_machines:
        key = f"{projected.machine}|{projected.workload}|{projected.batch}|{projected.math}"
        rows[key] = list(_rows(projected, measured))
        labels[key] = f"{projected.machine}: {projected.workload}, batch {projected.batch}, {projected.math} math"
    every = [row for own in rows.values() for row in own]
    if not every:
        return None
    columns = {"variant": "variant", "kind": "time", "shown": "ms a step [interval]", "speed_up": "speed-up"}
    columns |= {"bound": "bound by", "reason": "reason"}
    colour = coloured("kind", [(_PROJECTED, series(4)), (_MEASURED, series(0))])
    height = row_step(row["row"] for row in every)
    spec = drawn("projected", columns, rows=rows_of("row"), colour=colour, height=height)
    text = (
        "Projected times are computed from a description of the machine, not measured on it. Their line is an "
        "interval: how far published steps are from their sums. "
        f"{COMMON_ERROR} {SINGLE_IS_A_SHARE}"
    )
    if any(row["kind"] == _MEASURED for row in every):
        text += " Measured times have their 95 % interval. They are of this page's machines, which may be other ones."
    return Panel("projections", "Projected step times", text, columns, rows, spec, "projection", labels=labels)


def _rows(machine: ProjectedMachine, measured: Sequence[MachineResults]) -> Iterator[DataRow]:
    summaries = [
        summary
        for results in measured
        for summary in results.summaries
        if (summary.case.workload, summary.case.batch) == (machine.workload, machine.batch)
        and summary.case.variant.name is not VariantName.SINGLE
    ]
    for variant in machine.variants:
        yield _projected(variant)
        for each in summaries:
            if each.step_time_s is not None and str(each.case.variant) == variant.variant:
                yield _row(variant.variant, _MEASURED, each.step_time_s)


def _projected(variant: ProjectedVariant) -> DataRow:
    time, speed_up = variant.step_time_s, variant.speed_up
    bound = ", ".join([_bound(each) for each in variant.bound_by if each.share >= _LEAST_SHARE][:3])
    estimate = None if time is None else time.estimate
    speed = "-" if speed_up is None else number(speed_up.mid)
    more = {"speed_up": speed, "bound": bound or "-", "reason": variant.reason or ""}
    return {**_row(variant.variant, _PROJECTED, estimate), **more}


def _bound(found: ProjectedShare) -> str:
    """Return the part, and its share if older projections have several."""
    return found.part if found.share == 1 else f"{found.part} {found.share:.0%}"


def _row(variant: str, kind: str, time: Estimate | None) -> DataRow:
    low, high = (None, None) if time is None else (end * 1e3 for end in time.ends)
    return {
        "row": variant if kind == _PROJECTED else f"{variant}, {kind}",
        "variant": variant,
        "kind": kind,
        "ms": None if time is None else time.value * 1e3,
        "low": low,
        "high": high,
        "shown": "-" if time is None else time.text(1e-3),
        "speed_up": "-",
        "bound": "-",
        "reason": "",
    }
