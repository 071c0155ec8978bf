"""A step's time by phase, for each variant."""

from collections.abc import Mapping, Sequence
from statistics import median

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import Cell, DataRow, Panel, Shown
from dpbench.report.page.theme import (
    LABEL_ROOM,
    PAPER,
    chart,
    coloured,
    number_axis,
    room_for_labels,
    row_step,
    rows_of,
    tooltip,
)
from dpbench.report.units import number
from dpbench.results.compare import Comparison
from dpbench.results.phase_parts import MOVES, PhasePart, Work, phase_parts

_COLOURS = {
    "scatter": "var(--c7)",
    "replicate": "var(--c1)",
    "parallel_apply": "var(--c0)",
    "gather": "var(--c9)",
    "loss": "var(--c8)",
    "forward": "var(--c6)",
    f"forward{MOVES}": "var(--c10)",
    "reduce": "var(--c5)",
    "backward": "var(--c3)",
    f"backward{MOVES}": "var(--c11)",
    "optimiser": "var(--c4)",
}
_LONGEST = 2.5
"""A bar of more than so many medians is cut, because it would squash the others."""


def phases(found: MachineResults) -> Panel | None:
    """Return the bars; None if no variant has phases."""
    rows = {each.setting.setting: own for each in found.shown if (own := _rows(each))}
    if not rows:
        return None
    used = {str(row["part"]) for own in rows.values() for row in own}
    colours = [(name, colour) for name, colour in _COLOURS.items() if name in used]
    y = rows_of("variant")
    bars = {
        "y": y,
        "x": number_axis("from", "ms of a step, by phase"),
        "x2": {"field": "to"},
        "color": coloured("part", colours),
        "tooltip": tooltip(("variant", "variant"), ("part", "phase"), ("shown", "ms"), ("percent", "% of step")),
    }
    label = {"y": y, "x": {"field": "end", "type": "quantitative"}, "text": {"field": "label"}}
    spec = chart(
        {"mark": {"type": "bar", "height": {"band": 0.72}, "stroke": PAPER, "strokeWidth": 0.5}, "encoding": bars},
        {"mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 11}, "encoding": label},
        room_for_labels(),
        height=row_step(found.variants),
    )
    columns = (
        Shown("variant", "variant"),
        Shown("part", "phase"),
        Shown("work", "kind"),
        Shown("shown", "ms"),
        Shown("percent", "% of step"),
    )
    labels, title = found.labels, "Where a step's time goes"
    return Panel("phases", title, _text(rows), columns, rows, spec, "setting", found.first, labels)


def _text(rows: Mapping[str, Sequence[DataRow]]) -> str:
    every = [row for own in rows.values() for row in own]
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


_CUT, _DISAGREES = " ▸", " ≠"


def _rows(found: Comparison) -> list[DataRow]:
    parts = {
        str(row.summary.case.variant): own
        for row in found.rows
        if (own := phase_parts(row.summary.phases, len(row.summary.case.devices)))
    }
    if not parts:
        return []
    totals = {variant: sum(part.time_s for part in own) for variant, own in parts.items()}
    most_s = _LONGEST * median(totals.values())
    room = LABEL_ROOM * min(most_s, max(totals.values())) * 1e3
    marks = {
        str(row.summary.case.variant): _DISAGREES
        for row in found.rows
        if row.summary.phases is not None and row.summary.phases.disagreeing
    }
    bars = [_bar(variant, own, most_s, marks.get(variant, "")) for variant, own in parts.items()]
    return [{**row, "room": room} for bar in bars for row in bar]


def _bar(variant: str, parts: Sequence[PhasePart], most_s: float, mark: str) -> list[DataRow]:
    """Return the parts of a bar that ends at `most_s`. The first has the label of the bar, with its `mark`."""
    total_s = sum(part.time_s for part in parts)
    label = f"{number(total_s * 1e3)} ms{_CUT if total_s > most_s else ''}{mark}"
    rows: list[Mapping[str, Cell]] = []
    begin_s = 0.0
    for part in parts:
        end_s = begin_s + part.time_s
        rows.append(
            {
                "variant": variant,
                "part": part.label,
                "work": str(part.work),
                "from": min(begin_s, most_s) * 1e3,
                "to": min(end_s, most_s) * 1e3,
                "shown": float(f"{part.time_s * 1e3:.3g}"),
                "percent": round(100 * part.time_s / total_s, 1) if total_s > 0 else 0.0,
                "end": None if rows else min(total_s, most_s) * 1e3,
                "label": "" if rows else label,
            }
        )
        begin_s = end_s
    return rows
