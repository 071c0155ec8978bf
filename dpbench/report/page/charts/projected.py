"""Projected step times with their intervals, beside what was measured."""

from collections.abc import Sequence

from dpbench.report.page.inputs import ProjectedMachine, ProjectedVariant
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import chart, coloured, number_axis, row_step, rows_of, series, tooltip
from dpbench.report.units import number
from dpbench.results.summary import Summary
from dpbench.sweep.variants import VariantName

_LEAST_SHARE = 0.05
COMMON_ERROR = "Variants share a part of that error, so an order may be sure although lines overlap."
SINGLE_IS_A_SHARE = "single is one device with its share of the batch, not the whole batch."
_PROJECTED, _MEASURED = "projected", "measured"


def projections(found: Sequence[ProjectedMachine], measured: Sequence[MachineResults]) -> Panel | None:
    """Return the projections of each machine; None without any.

    Measured times of the same workload and batch are drawn below each variant; not those of `single`, whose batch is a
    share here.
    """
    rows: dict[str, list[DataRow]] = {}
    labels = {}
    for each in found:
        key = f"{each.machine}|{each.workload}|{each.batch}|{each.math}"
        rows[key] = _rows(each, measured)
        labels[key] = f"{each.machine}: {each.workload}, batch {each.batch}, {each.math} math"
    if not any(rows.values()):
        return None
    y = rows_of("row")
    colour = coloured("kind", [(_PROJECTED, series(4)), (_MEASURED, series(0))])
    ends = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
    tip = tooltip(("variant", "variant"), ("kind", "time"), ("shown", "ms a step"), ("bound", "bound by"))
    spec = chart(
        {"mark": {"type": "rule", "strokeWidth": 3}, "encoding": {"y": y, **ends, "color": colour}},
        {
            "mark": {"type": "point", "size": 110},
            "encoding": {"y": y, "x": number_axis("ms", "ms a step"), "color": colour, "tooltip": tip},
        },
        height=row_step(row["row"] for own in rows.values() for row in own),
    )
    columns = (
        Shown("variant", "variant"),
        Shown("kind", "time"),
        Shown("shown", "ms a step [interval]"),
        Shown("speed_up", "speed-up"),
        Shown("bound", "bound by"),
        Shown("reason", "reason"),
    )
    text = (
        "Projected times are computed from a description of the machine, not measured on it. Their line is a 90 % "
        "interval: draws of its parameters, widened by the model's error on published steps. "
        f"{COMMON_ERROR} {SINGLE_IS_A_SHARE}"
    )
    if any(row["kind"] == _MEASURED for own in rows.values() for row in own):
        text += " Measured times have their 95 % interval. They are of this page's machines, which may be other ones."
    return Panel("projections", "Projected step times", text, columns, rows, spec, "projection", labels=labels)


def _rows(machine: ProjectedMachine, measured: Sequence[MachineResults]) -> list[DataRow]:
    rows: list[DataRow] = []
    for variant in machine.variants:
        rows.append(_projected(variant))
        rows += [_measured(each) for each in _same(machine, variant, measured)]
    return rows


def _same(described: ProjectedMachine, variant: ProjectedVariant, measured: Sequence[MachineResults]) -> list[Summary]:
    return [
        each
        for each in (summary for machine in measured for summary in machine.summaries)
        if each.step_time_s is not None
        and str(each.case.variant) == variant.variant
        and each.case.variant.name is not VariantName.SINGLE
        and (each.case.workload, each.case.batch) == (described.workload, described.batch)
    ]


def _projected(found: ProjectedVariant) -> DataRow:
    time = found.step_time_s
    bound = [f"{each.part} {each.share:.0%}" for each in found.bound_by if each.share >= _LEAST_SHARE]
    return {
        "row": found.variant,
        "variant": found.variant,
        "kind": _PROJECTED,
        "ms": None if time is None else time.mid * 1e3,
        "low": None if time is None else time.low * 1e3,
        "high": None if time is None else time.high * 1e3,
        "shown": "-" if time is None else _shown(time.mid, time.low, time.high),
        "speed_up": "-" if found.speed_up is None else number(found.speed_up.mid),
        "bound": ", ".join(bound[:3]) or "-",
        "reason": found.reason or "",
    }


def _measured(found: Summary) -> DataRow:
    assert found.step_time_s is not None
    time = found.step_time_s
    low, high = (time.value if end is None else end for end in (time.low, time.high))
    return {
        "row": f"{found.case.variant}, measured",
        "variant": str(found.case.variant),
        "kind": _MEASURED,
        "ms": time.value * 1e3,
        "low": low * 1e3,
        "high": high * 1e3,
        "shown": _shown(time.value, low, high),
        "speed_up": "-",
        "bound": "-",
        "reason": "",
    }


def _shown(mid_s: float, low_s: float, high_s: float) -> str:
    return f"{number(mid_s * 1e3)} [{number(low_s * 1e3)}, {number(high_s * 1e3)}]"
