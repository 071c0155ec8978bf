"""The chart of a history: lines of step times in the order of time, with triangles at lasting changes. Pure.

The rows have ``ms``, ``kind`` (a lasting change: slower, faster or None), and a field for the place on the x axis.
"""

from collections.abc import Sequence
from typing import Any

from dpbench.report.page.history.changes import FASTER, SLOWER
from dpbench.report.page.theme import BAD, GOOD, MUTED, chart, number_axis

_HEIGHT = 260
_SHAPE = {
    "field": "kind",
    "type": "nominal",
    "legend": None,
    "scale": {"domain": [SLOWER, FASTER], "range": ["triangle-up", "triangle-down"]},
}
_KIND_COLOUR = {"condition": {"test": f"datum.kind === '{SLOWER}'", "value": BAD}, "value": GOOD}


def order_axis(field: str, names: Sequence[str], title: str) -> dict[str, Any]:
    """Return the x channel of these names in their order."""
    return {
        "field": field,
        "type": "ordinal",
        "sort": None,
        "title": title,
        "scale": {"domain": list(names)},
        "axis": {"labelAngle": -40, "labelOverlap": "greedy", "grid": False, "labelLimit": 110},
    }


def line_chart(
    x: dict[str, Any],
    colour: dict[str, Any],
    tip: list[dict[str, Any]],
    label: dict[str, Any],
    *layers: dict[str, Any],
    marked: str = "datum.kind",
) -> dict[str, Any]:
    """Return the chart, with `layers` between the lines and their points.

    Where a row is `marked`, a rule goes through the chart, and the text of `label` stands above it.
    """
    where = [{"filter": marked}]
    y = number_axis("ms", "ms a step", zero=False)
    text = {"type": "text", "dy": -6, "fontSize": 11, "color": MUTED, "baseline": "bottom", **label["mark"]}
    return chart(
        {
            "mark": {"type": "rule", "strokeDash": [3, 4], "color": MUTED},
            "transform": where,
            "encoding": {"x": x},
        },
        {"mark": text, "transform": where, "encoding": {"x": x, "y": {"value": 0}, "text": {"field": label["field"]}}},
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": colour}},
        *layers,
        {"mark": {"type": "point", "size": 45}, "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip}},
        {
            "mark": {"type": "point", "size": 190, "filled": True, "yOffset": -16},
            "transform": [{"filter": "datum.kind"}],
            "encoding": {"x": x, "y": y, "tooltip": tip, "shape": _SHAPE, "color": _KIND_COLOUR},
        },
        height=_HEIGHT,
    )
