"""Projections of one workload on several machines, as tables and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.projection.project import Interval, Projection
from dpbench.projection.ranking import MachineProjection, ProjectedRow
from dpbench.projection.replay.critical_path import kinds_of_path
from dpbench.report.table import Column, Table, folded
from dpbench.report.units import number, time_unit

SCHEMA = 1
_MOST_SENSITIVE = 3
_LEAST_SHARE = 0.05
_LEGEND = (
    "Projected, not measured. Times: the mid case, and in brackets a 90 % interval: draws of the machine's "
    "parameters, widened by the model's error on published steps. Speed-up: items a second over those of one device "
    "with as many items as here on each device. Its limit is the number of devices. A variant is called slower than "
    "the fastest only if the interval of the ratio of both steps lies above 1.01. Bound by: what the critical path "
    "consists of. Hidden: the share of the communication that the step does not wait for."
)


def projections_text(machine_projections: Sequence[MachineProjection]) -> Group:
    """Return a table for each machine, with the advice below it, and a legend at the end."""
    parts: list[RenderableType] = []
    for projected in machine_projections:
        parts += [Text(projected.advice, style="bold"), Text(), _table(projected)]
        parts += [Text(line) for line in (*_reasons(projected), *_sensitive(projected), *projected.notes, "")]
    return Group(*parts, Text(_LEGEND, style="dim"))


def projections_json(machine_projections: Sequence[MachineProjection]) -> dict[str, Any]:
    """Return the same as one JSON object. Times are in seconds."""
    return {
        "schema": SCHEMA,
        "projections": [_machine_json(projected) for projected in machine_projections],
    }


def _table(projected: MachineProjection) -> Table:
    shown = {row.variant: (row.projection, row.speed_up) for row in projected.rows if row.projection is not None}
    unit_s, unit = time_unit(projection.step_time_s.mid for projection, _ in shown.values())
    columns = [
        Column("variant", folded),
        Column(f"step time\n{unit}", lambda name: interval(shown[name][0].step_time_s, unit_s)),
        Column("items/s", lambda name: shown[name][0].batch / shown[name][0].step_time_s.mid),
        Column("speed-up", lambda name: shown[name][1], interval),
        Column("% of\nlimit", lambda name: _percent_of_limit(*shown[name])),
        Column("bound by", lambda name: _bound(shown[name][0])),
        Column("hidden", lambda name: shown[name][0].hidden, "{:.0%}".format),
    ]
    several = next((p.devices for p, _ in shown.values() if p.devices > 1), 1)
    title = (
        f"{projected.workload} on {projected.machine}, batch {projected.batch}, "
        f"{projected.batch // several} items on each device, {projected.math} math"
    )
    return Table(title, columns, list(shown))


def _percent_of_limit(projection: Projection, speed_up: Interval | None) -> str | None:
    return None if speed_up is None else f"{100 * speed_up.mid / projection.devices:.0f}"


def interval(found: Interval, unit: float = 1.0) -> str:
    """Return a text such as ``5.61 [5.20, 6.02]``."""
    return f"{number(found.mid / unit)} [{number(found.low / unit)}, {number(found.high / unit)}]"


def _bound(projection: Projection) -> str | None:
    shares = [f"{name} {share:.0%}" for name, share in kinds_of_path(projection.bound_by) if share >= _LEAST_SHARE]
    return "\n".join(shares) if projection.bound_by else None


def _reasons(projected: MachineProjection) -> Iterator[str]:
    yield from (f"{row.variant}: {row.reason}" for row in projected.rows if row.reason is not None)


def _sensitive(projected: MachineProjection) -> Iterator[str]:
    for row in projected.rows:
        if row.projection is not None:
            worst = row.projection.sensitivities[:_MOST_SENSITIVE]
            parts = (f"{each.parameter} {each.low - 1:+.0%} / {each.high - 1:+.0%}" for each in worst)
            yield f"{row.variant}, step time if a parameter is low / high: {', '.join(parts)}"


def _machine_json(projected: MachineProjection) -> dict[str, Any]:
    return {
        "machine": projected.machine,
        "workload": projected.workload,
        "batch": projected.batch,
        "math": projected.math,
        "advice": projected.advice,
        "notes": list(projected.notes),
        "variants": [_row_json(row) for row in projected.rows],
    }


def _row_json(row: ProjectedRow) -> dict[str, Any]:
    found = row.projection
    if found is None:
        return {"variant": str(row.variant), "reason": row.reason}
    return {
        "variant": str(row.variant),
        "devices": found.devices,
        "step_time_s": _interval_json(found.step_time_s),
        "speed_up": None if row.speed_up is None else _interval_json(row.speed_up),
        "bound_by": [{"part": name, "share": share} for name, share in found.bound_by],
        "saved_if_free": {str(role): share for role, share in found.saved.items()},
        "hidden_share": found.hidden,
        "communication_s": found.communication_s,
        "fair_sharing_ratio": found.fair_ratio,
        "sensitivities": [
            {"parameter": sensitivity.parameter, "low_ratio": sensitivity.low, "high_ratio": sensitivity.high}
            for sensitivity in found.sensitivities
        ],
    }


def _interval_json(found: Interval) -> dict[str, float]:
    return {"low": found.low, "mid": found.mid, "high": found.high}
