"""Each variant's time as a multiple of the reference's, with its interval."""

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import (
    INK,
    MUTED,
    STEP_PX,
    chart,
    coloured,
    number_axis,
    row_step,
    rows_of,
    tooltip,
    variant_colours,
)
from dpbench.report.units import estimate, number
from dpbench.results.compare import Comparison, Row

_MS = 1e-3


def ratios(found: MachineResults) -> Panel | None:
    """Return the forest plot; None if no variant has a ratio."""
    rows = {each.setting.setting: _rows(each) for each in found.shown if each.reference is not None}
    if not rows:
        return None
    references = " or ".join(sorted({str(each.reference) for each in found.shown if each.reference is not None}))
    shared = {"y": rows_of("variant")}
    colour = coloured("variant", variant_colours(found.variants), legend=False)
    value = number_axis("ratio", f"time over that of {references}", log=True)
    ends = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
    spec = chart(
        {"mark": {"type": "rule", "strokeDash": [4, 3], "color": MUTED}, "encoding": {"x": {"datum": 1.0}}},
        {"mark": {"type": "rule", "strokeWidth": 3}, "encoding": {**shared, **ends, "color": colour}},
        {
            "mark": {"type": "point", "size": 110},
            "encoding": {
                **shared,
                "x": value,
                "color": colour,
                "tooltip": tooltip(("variant", "variant"), ("shown", "ratio"), ("time", "ms a step")),
            },
        },
        {
            "mark": {
                "type": "text",
                "align": "left",
                "baseline": "bottom",
                "dy": -6,
                "dx": 4,
                "color": INK,
                "fontSize": 11,
            },
            "encoding": {**shared, "x": value, "text": {"field": "label"}},
        },
        height=row_step(found.variants, least=STEP_PX + 8),
    )
    return Panel(
        "ratios",
        f"Time compared with {references}",
        f"Each dot is a variant's time for a step over the time of {references}. The line is its 95 % interval. "
        "Left of 1 is faster. A variant whose line reaches 1 may be as fast.",
        (
            Shown("variant", "variant"),
            Shown("time", "ms a step"),
            Shown("shown", f"ratio to {references} [95 % interval]"),
            Shown("rounds", "rounds"),
        ),
        rows,
        spec,
        "setting",
        found.first,
        found.labels,
    )


def _rows(found: Comparison) -> list[DataRow]:
    return [_row(row) for row in found.rows if row.ratio is not None]


def _row(row: Row) -> DataRow:
    assert row.ratio is not None
    assert row.summary.step_time_s is not None
    times = row.ratio.times
    return {
        "variant": str(row.summary.case.variant),
        "ratio": times.value,
        "low": times.value if times.low is None else times.low,
        "high": times.value if times.high is None else times.high,
        "label": number(times.value),
        "shown": estimate(times),
        "time": estimate(row.summary.step_time_s, _MS),
        "rounds": f"{row.summary.rounds_ok}/{row.summary.rounds}",
    }
