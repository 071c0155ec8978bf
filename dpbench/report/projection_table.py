"""Projections of one workload on several machines, as tables and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.judge.estimate import Estimate
from dpbench.projection.choice import MachineProjection, ProjectedRow, words_of
from dpbench.projection.step_sum import StepSum
from dpbench.report.table import Column, Table, folded
from dpbench.text.quantities import time_unit

SCHEMA = 1
_LEGEND = (
    "Projected, not measured: a step is the longer of the host's calls and the device's sum. The parts are below each "
    "table. In brackets: how far published steps are from their sums, each source predicted without itself. Ideal: the "
    "step of one device with as many items as here on each device, over the step. A variant is called slower than the "
    "fastest only if the interval of the ratio of both steps lies above 1.01. Hidden: the share of the communication "
    "that costs nothing."
)


def projections_text(machine_projections: Sequence[MachineProjection]) -> Group:
    """A table for each machine, with the advice above it and the sums below it."""
    parts: list[RenderableType] = []
    for projected in machine_projections:
        parts += [Text(projected.advice, style="bold"), Text(), _table(projected)]
        reasons = (f"{variant}: {reason}" for variant, reason in projected.reasons.items())
        sums = (f"{row.variant}: {words_of(row.sum)}" for row in projected.rows)
        parts += [Text(line) for line in (*reasons, *sums, *projected.notes, "")]
    return Group(*parts, Text(_LEGEND, style="dim"))


def projections_json(machine_projections: Sequence[MachineProjection]) -> dict[str, Any]:
    """Times are in seconds."""
    return {"schema": SCHEMA, "projections": [_machine_json(projected) for projected in machine_projections]}


def _table(projected: MachineProjection) -> Table:
    unit_s, unit = time_unit(row.sum.step_s for row in projected.rows)
    columns = [
        Column("variant", lambda row: folded(row.variant)),
        Column(
            f"step time\n{unit}",
            lambda row: row.step_time_s,
            lambda time: time.text(unit_s),
        ),
        Column("items/s", lambda row: row.sum.batch / row.sum.step_s),
        Column("% of\nideal", lambda row: f"{100 * row.speed_up.value / row.sum.devices:.0f}"),
        Column("bound by", lambda row: str(row.sum.bound_by)),
        Column("hidden", lambda row: _hidden(row.sum), "{:.0%}".format),
    ]
    several = next((row.sum.devices for row in projected.rows if row.sum.devices > 1), 1)
    title = (
        f"{projected.workload} on {projected.machine}, batch {projected.batch}, "
        f"{projected.batch // several} items on each device, {projected.math} math"
    )
    return Table(title, columns, projected.rows)


def _hidden(step: StepSum) -> float | None:
    return step.hidden_s / step.communication_s if step.communication_s else None


def _machine_json(projected: MachineProjection) -> dict[str, Any]:
    return {
        "machine": projected.machine,
        "workload": projected.workload,
        "batch": projected.batch,
        "math": projected.math,
        "advice": projected.advice,
        "notes": list(projected.notes),
        "variants": [
            *(_row_json(row) for row in projected.rows),
            *({"variant": str(variant), "reason": reason} for variant, reason in projected.reasons.items()),
        ],
    }


def _interval(estimate: Estimate) -> dict[str, float | None]:
    return {"low": estimate.low, "mid": estimate.value, "high": estimate.high}


def _row_json(row: ProjectedRow) -> dict[str, Any]:
    step = row.sum
    return {
        "variant": str(row.variant),
        "devices": step.devices,
        "step_time_s": _interval(row.step_time_s),
        "speed_up": _interval(row.speed_up),
        "bound_by": [{"part": str(step.bound_by), "share": 1.0}],
        "parts_s": {str(part): seconds for part, seconds in step.parts.items()},
        "host_s": step.host_s,
        "hidden_share": _hidden(step),
        "communication_s": step.communication_s,
        "memory_bytes": step.memory_bytes,
        "fits": step.fits,
    }
