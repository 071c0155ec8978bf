"""A step's time by phase, for each variant."""

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import chart, coloured, number_axis, row_step, rows_of, tooltip
from dpbench.results.compare import Comparison
from dpbench.results.phase_parts import phase_parts

_COLOURS = {
    "scatter": "var(--c7)",
    "replicate": "var(--c1)",
    "parallel_apply": "var(--c0)",
    "gather": "var(--c9)",
    "loss": "var(--c8)",
    "forward": "var(--c6)",
    "reduce": "var(--c5)",
    "backward": "var(--c3)",
    "optimiser": "var(--c4)",
}
_NAMES = {"parallel_apply": "apply"}


def phases(found: MachineResults) -> Panel | None:
    """Return the stacked bars; None if no variant has phases."""
    rows = {each.setting.setting: own for each in found.shown if (own := _rows(each))}
    if not rows:
        return None
    used = {str(row["part"]) for own in rows.values() for row in own}
    colours = {_NAMES.get(name, name): colour for name, colour in _COLOURS.items() if _NAMES.get(name, name) in used}
    encoding = {
        "y": rows_of("variant"),
        "x": {**number_axis("ms", "ms of a step, by phase"), "stack": "zero"},
        "color": coloured("part", list(colours.items())),
        "order": {"field": "order", "type": "quantitative"},
        "tooltip": tooltip(("variant", "variant"), ("part", "phase"), ("shown", "ms"), ("percent", "% of step")),
    }
    spec = chart(
        {"mark": {"type": "bar", "height": {"band": 0.72}}, "encoding": encoding}, height=row_step(found.variants)
    )
    return Panel(
        "phases",
        "Where a step's time goes",
        "From extra steps after the timed ones, which may take longer than those. scatter, replicate, gather and "
        "reduce move data between devices; the rest computes. forward and backward are what is left of them. Where "
        "those parts are not known, they are whole and hold the moves too.",
        (
            Shown("variant", "variant"),
            Shown("part", "phase"),
            Shown("work", "kind"),
            Shown("shown", "ms"),
            Shown("percent", "% of step"),
        ),
        rows,
        spec,
        "setting",
        found.first,
        found.labels,
    )


def _rows(found: Comparison) -> list[DataRow]:
    rows: list[DataRow] = []
    for summary in (row.summary for row in found.rows):
        parts = phase_parts(summary.phases)
        total = sum(part.time_s for part in parts)
        rows += [
            {
                "variant": str(summary.case.variant),
                "part": _NAMES.get(part.name, part.name),
                "work": str(part.work),
                "order": place,
                "ms": part.time_s * 1e3,
                "shown": float(f"{part.time_s * 1e3:.3g}"),
                "percent": round(100 * part.time_s / total, 1) if total > 0 else 0.0,
            }
            for place, part in enumerate(parts)
        ]
    return rows
