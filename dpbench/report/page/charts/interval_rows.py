"""The drawing that several charts share: a row for each variant, with a ratio, its interval, and a mark at 1.

tuned   ──●──
naive     ┊    ───●───
fsdp      ┊            ● 31.0 ▸     cut, because it would squash the others
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from dpbench.report.page.parts import DataRow
from dpbench.report.page.theme import INK, MUTED, PAPER, STEP_PX, chart, number_axis, row_step, rows_of, tooltip
from dpbench.report.units import number
from dpbench.stats.rounds import Estimate
from dpbench.sweep.variants import VariantId

_CUT = " ▸"
_LARGEST = 5.0


def interval_rows(variants: list[VariantId], title: str, colour: dict[str, Any], *tips: tuple[str, str]) -> Any:
    """Return the specification. Its rows have a variant and what `ratio_fields` gives."""
    y = rows_of("variant")
    ends = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
    value = number_axis("ratio", title, log=True)
    label = {"type": "text", "align": "left", "baseline": "bottom", "dy": -6, "dx": 4, "color": INK, "fontSize": 11}
    written = {"y": y, "x": value, "text": {"field": "label"}}
    return chart(
        {"mark": {"type": "rule", "strokeDash": [4, 3], "color": MUTED}, "encoding": {"x": {"datum": 1.0}}},
        {"mark": {"type": "rule", "strokeWidth": 3}, "encoding": {"y": y, **ends, "color": colour}},
        {
            "mark": {"type": "point", "size": 110},
            "encoding": {"y": y, "x": value, "color": colour, "tooltip": tooltip(("variant", "variant"), *tips)},
        },
        # The first of both is wider: it clears the dashed line behind the text.
        *({"mark": mark, "encoding": written} for mark in ({**label, "stroke": PAPER, "strokeWidth": 3}, label)),
        height=row_step(variants, least=STEP_PX + 8),
    )


def ratio_fields(ratios: Sequence[Estimate]) -> list[DataRow]:
    """Return the fields of the rows that the chart draws. Without an interval the ends are the value.

    A ratio of more than `_LARGEST` medians has no line, and stands at the end of the others'. One of at most 1 is never
    cut, because the chart reaches its mark at 1 in any case.
    """
    most = max(_LARGEST * median(ratio.value for ratio in ratios), 1.0) if ratios else 0.0
    end = max((ratio.high or ratio.value for ratio in ratios if ratio.value <= most), default=0.0)
    return [_drawn(ratio) if ratio.value <= most else _cut(ratio, end) for ratio in ratios]


def cut_note(rows: Iterable[DataRow]) -> str:
    """Return a sentence on the ratios beyond the chart, after a blank; nothing if there are none."""
    return " A dot with ▸ is beyond the chart." if any(str(row["label"]).endswith(_CUT) for row in rows) else ""


def _drawn(ratio: Estimate) -> DataRow:
    low, high = (ratio.value if end is None else end for end in (ratio.low, ratio.high))
    return {"ratio": ratio.value, "low": low, "high": high, "label": number(ratio.value)}


def _cut(ratio: Estimate, end: float) -> DataRow:
    return {"ratio": end, "low": end, "high": end, "label": f"{number(ratio.value)}{_CUT}"}
