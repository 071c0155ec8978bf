"""The drawing that several charts share: a row for each variant, with a ratio, its interval, and a mark at 1."""

from typing import Any

from dpbench.report.page.theme import INK, MUTED, STEP_PX, chart, number_axis, row_step, rows_of, tooltip
from dpbench.stats.rounds import Estimate
from dpbench.sweep.variants import VariantId


def interval_rows(variants: list[VariantId], title: str, colour: dict[str, Any], *tips: tuple[str, str]) -> Any:
    """Return the specification. Its rows have a variant, a label, and what `ratio_fields` gives."""
    y = rows_of("variant")
    ends = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
    value = number_axis("ratio", title, log=True)
    label = {"type": "text", "align": "left", "baseline": "bottom", "dy": -6, "dx": 4, "color": INK, "fontSize": 11}
    return chart(
        {"mark": {"type": "rule", "strokeDash": [4, 3], "color": MUTED}, "encoding": {"x": {"datum": 1.0}}},
        {"mark": {"type": "rule", "strokeWidth": 3}, "encoding": {"y": y, **ends, "color": colour}},
        {
            "mark": {"type": "point", "size": 110},
            "encoding": {"y": y, "x": value, "color": colour, "tooltip": tooltip(("variant", "variant"), *tips)},
        },
        {"mark": label, "encoding": {"y": y, "x": value, "text": {"field": "label"}}},
        height=row_step(variants, least=STEP_PX + 8),
    )


def ratio_fields(ratio: Estimate) -> dict[str, float]:
    """Return the fields of a row that the chart draws. Without an interval the ends are the value."""
    low, high = (ratio.value if end is None else end for end in (ratio.low, ratio.high))
    return {"ratio": ratio.value, "low": low, "high": high}
