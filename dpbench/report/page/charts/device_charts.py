"""Charts of what a step does with its devices: time by phase, and the rounds along the run."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median

from dpbench.analysis.compare_variants import Comparison
from dpbench.analysis.phase_summary import MOVES, PhasePart, Work
from dpbench.cases.case import Case
from dpbench.records.record import Outcome, Record
from dpbench.report.page.drawing import LABEL_ROOM, LOG, axis_of, coloured, series, shaped, variant_colours
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.text.quantities import number

_COLOURS = {
    "scatter": series(7),
    "replicate": series(1),
    "parallel_apply": series(0),
    "gather": series(9),
    "loss": series(8),
    "forward": series(6),
    f"forward{MOVES}": "var(--c10)",
    "reduce": series(5),
    "backward": series(3),
    f"backward{MOVES}": "var(--c11)",
    "optimiser": series(4),
}
_LONGEST = 2.5
"""A bar of more than so many medians is cut, because it would squash the others."""
_CUT = " ▸"
_DISAGREES = " ≠"


def phases(machine: MachineResults) -> Panel | None:
    rows = {comparison.setting.setting: _phase_rows(comparison) for comparison in machine.shown}
    used = {str(row["part"]) for rows_of_key in rows.values() for row in rows_of_key}
    colours = coloured("part", [(name, colour) for name, colour in _COLOURS.items() if name in used])
    columns = {"variant": "variant", "part": "phase", "work": "kind", "shown": "ms", "percent": "% of step"}
    title, value = "Where a step's time goes", axis_of("from", "ms of a step, by phase")
    return machine.panel(
        "phases", title, _phases_text, columns=columns, rows=rows, chart="bars", value=value, colour=colours
    )


def _phases_text(every: Sequence[DataRow]) -> str:
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


def _phase_rows(comparison: Comparison) -> list[DataRow]:
    of_rows = [(row.summary, row.summary.phases.parts(len(row.summary.case.devices))) for row in comparison.rows]
    totals = [sum(part.time_s for part in parts) for _, parts in of_rows if parts]
    if not totals:
        return []
    most_s = _LONGEST * median(totals)
    room = LABEL_ROOM * min(most_s, max(totals)) * 1e3
    return [
        {**row, "room": room}
        for summary, parts in of_rows
        for row in _bar(str(summary.case.variant), parts, most_s, _DISAGREES if summary.phases.disagreeing else "")
    ]


def _bar(variant: str, parts: Sequence[PhasePart], most_s: float, mark: str) -> Iterator[DataRow]:
    """The parts of a bar that ends at `most_s`. The first has the label of the bar, with its `mark`."""
    total_s = sum(part.time_s for part in parts)
    label: str = f"{number(total_s * 1e3)} ms{_CUT if total_s > most_s else ''}{mark}"
    end: float | None = min(total_s, most_s) * 1e3
    begin_s = 0.0
    for part in parts:
        end_s = begin_s + part.time_s
        yield {
            "variant": variant,
            "part": part.label,
            "work": str(part.work),
            "from": min(begin_s, most_s) * 1e3,
            "to": min(end_s, most_s) * 1e3,
            "shown": float(f"{part.time_s * 1e3:.3g}"),
            "percent": round(100 * part.time_s / total_s, 1) if total_s > 0 else 0.0,
            "end": end,
            "label": label,
        }
        begin_s, end, label = end_s, None, ""


_MOST_POINTS = 6000
_HEIGHT = 170
_LOG_HEIGHT = 300
_WIDE = 8
"""On a linear axis, values that differ more leave no room between the smaller ones."""


def rounds_along(machine: MachineResults) -> Panel | None:
    """Each round's median step along the run."""
    by_setting: dict[str, dict[Case, list[Record]]] = {}
    for record in machine.records:
        if record.outcome is Outcome.OK:
            for key in machine.settings_by_case.get(record.case, ()):
                by_setting.setdefault(key, {}).setdefault(record.case, []).append(record)
    text = (
        "Each dot is one round: a fresh process's median step. Rounds that drift or jump together point to the "
        "machine, not to a variant."
    )
    rows = {}
    for key in (key for key in machine.labels if key in by_setting):
        cases = list(by_setting[key].values())
        # Every nth record of each case leaves about as many dots as have room.
        step = max(1, -(-sum(map(len, cases)) * len(by_setting) // _MOST_POINTS))
        rows[key] = [_dot(record) for records in cases for record in records[::step]]
        if step > 1:
            text = f"{text} There are too many dots, so only some are shown."
    rows = {key: rows_of_key for key, rows_of_key in rows.items() if len(rows_of_key) > 1}
    is_log = _is_wide(rows)
    look = {
        "value": axis_of("value", "ms a step", **LOG if is_log else {}),
        "colour": machine.colour(legend=True),
        "shape": shaped("variant", variant_colours(machine.variants)),
        "height": _LOG_HEIGHT if is_log else _HEIGHT,
    }
    columns = {"variant": "variant", "round": "round", "at": "began at", "value": "ms a step"}
    return machine.panel("rounds", "Rounds along the run", text, columns=columns, rows=rows, chart="along", **look)


def _dot(record: Record) -> DataRow:
    return {
        "variant": str(record.case.variant),
        "round": record.round,
        "at": datetime.fromisoformat(record.started_at).isoformat(timespec="seconds"),
        "value": float(f"{median(record.step_times_s) * 1e3:.4g}"),
    }


def _is_wide(rows: Mapping[str, Sequence[DataRow]]) -> bool:
    """Whether the values of any setting differ by more than a linear axis shows."""
    values = [[float(str(row["value"])) for row in rows_of_key] for rows_of_key in rows.values()]
    return any(0 < _WIDE * min(rows_of_key) < max(rows_of_key) for rows_of_key in values)
