"""A map of batch and devices with the fastest scheme in each place."""

from collections.abc import Mapping

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import LINE, PAPER, chart, coloured, tooltip, variant_colours
from dpbench.report.units import estimate
from dpbench.results.compare import Comparison
from dpbench.results.winner import Winner, winner_of
from dpbench.sweep.case import Case
from dpbench.sweep.devices import short_devices

_UNDECIDED = "not decided"
_LEAST_CELLS = 2
_CELL_PX = 44


def winner_map(found: MachineResults) -> Panel | None:
    """Return the map by workload; None if no workload has two places."""
    groups: dict[str, list[DataRow]] = {}
    for comparison in found.compared.comparisons:
        winner = winner_of(comparison)
        if winner is not None:
            groups.setdefault(_family(comparison.setting), []).append(_row(comparison, winner))
    rows = {key: own for key, own in groups.items() if len(own) >= _LEAST_CELLS}
    if not rows:
        return None
    colours = [*variant_colours(found.variants), (_UNDECIDED, LINE)]
    used = {str(row["winner"]) for own in rows.values() for row in own}
    place = {
        "x": {"field": "devices", "type": "nominal", "sort": None, "title": "devices", "axis": _AXIS},
        "y": {"field": "batch", "type": "ordinal", "sort": "descending", "title": "global batch", "axis": _AXIS},
    }
    tip = tooltip(
        ("winner", "fastest"), ("time", "ms a step"), ("rivals", "may be as fast"), ("lead", "the next takes")
    )
    spec = chart(
        {
            "mark": {"type": "rect", "stroke": PAPER, "strokeWidth": 3, "cornerRadius": 6},
            "encoding": {
                **place,
                "color": coloured("winner", [pair for pair in colours if pair[0] in used]),
                "tooltip": tip,
            },
        },
        {
            "mark": {"type": "text", "fontWeight": 600, "fontSize": 12},
            "encoding": {**place, "text": {"field": "winner"}, "color": _text_colour()},
        },
        height={"step": _CELL_PX},
    )
    return Panel(
        "winners",
        "The fastest scheme by batch and devices",
        "A cell is grey if the fastest is not decided: the ratio to another scheme has 1 in its interval. The "
        "table names both.",
        (
            Shown("devices", "devices"),
            Shown("batch", "batch"),
            Shown("winner", "fastest"),
            Shown("best", "shortest median"),
            Shown("time", "ms a step"),
            Shown("rivals", "may be as fast"),
            Shown("lead", "the next takes"),
        ),
        rows,
        spec,
        "workload",
        labels={key: key for key in rows},
    )


_AXIS: Mapping[str, object] = {"labelAngle": 0, "ticks": False, "domain": False}


def _text_colour() -> dict[str, object]:
    test = f"datum.winner === '{_UNDECIDED}'"
    return {"condition": {"test": test, "value": "var(--ink)"}, "value": PAPER}


def _family(case: Case) -> str:
    steps = "" if case.steps_per_sample == 1 else f", {case.steps_per_sample} steps per sample"
    return f"{case.workload}, {case.mode}, {case.dtype}, {case.threads} threads, seed {case.seed}{steps}"


def _row(found: Comparison, winner: Winner) -> DataRow:
    best = winner.best
    assert best.step_time_s is not None
    lead = next(iter(winner.slower.items()), None)
    return {
        "devices": short_devices(found.setting.devices),
        "batch": found.setting.batch,
        "winner": str(best.case.variant) if winner.is_decided else _UNDECIDED,
        "best": str(best.case.variant),
        "time": estimate(best.step_time_s, 1e-3),
        "rivals": ", ".join(winner.rivals) or "none",
        "lead": f"{estimate(lead[1])} times ({lead[0]})" if lead else "no other was measured",
    }
