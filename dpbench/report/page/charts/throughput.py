"""Each variant's throughput in one setting against the ideal."""

from collections.abc import Iterator

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import (
    INK,
    LABEL_ROOM,
    chart,
    coloured,
    number_axis,
    room_for_labels,
    row_step,
    rows_of,
    tooltip,
    variant_colours,
)
from dpbench.report.units import number
from dpbench.results.compare import Comparison, Row
from dpbench.sweep.devices import are_shared

_LIMIT = "one device's throughput with its share, times the number of devices"
_SINGLE = "one device's throughput with the whole batch, because these lanes share one device"

_NEAR_IDEAL_PERCENT = 85
"""From here on the mark of the ideal would run through the label, so the label stands behind the mark."""


def throughput_here(found: MachineResults) -> Panel | None:
    """Return items a second by variant, with a mark at the ideal; None if no variant has a percentage of it."""
    rows = {each.setting.setting: own for each in found.shown if (own := list(_rows(each)))}
    if not rows:
        return None
    y = rows_of("variant")
    ideal = {"field": "ideal", "type": "quantitative"}
    spec = chart(
        {
            "mark": {"type": "bar", "height": {"band": 0.6}},
            "encoding": {
                "y": y,
                "x": number_axis("items", "items a second"),
                "color": coloured("variant", variant_colours(found.variants), legend=False),
                "tooltip": tooltip(("variant", "variant"), ("items", "items/s"), ("percent", "% of ideal")),
            },
        },
        {"mark": {"type": "tick", "thickness": 3, "color": INK}, "encoding": {"y": y, "x": ideal}},
        {
            "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 11},
            "encoding": {"y": y, "x": {"field": "label_at", "type": "quantitative"}, "text": {"field": "label"}},
        },
        room_for_labels(),
        height=row_step(found.variants),
    )
    kinds = [
        _SINGLE if shared else _LIMIT for shared in sorted({are_shared(each.setting.devices) for each in found.shown})
    ]
    columns = (Shown("variant", "variant"), Shown("items", "items/s"), Shown("percent", "% of ideal"))
    text = f"Items a second of each variant. The upright mark is the ideal: {'; '.join(kinds)}."
    title = "Throughput against the ideal"
    return Panel("throughput", title, text, columns, rows, spec, "setting", found.first, found.labels)


def _rows(found: Comparison) -> Iterator[DataRow]:
    for row in found.rows:
        percent, items = _percent(row), row.summary.items_per_s
        if percent is not None and items is not None:
            yield {
                "variant": str(row.summary.case.variant),
                "items": float(f"{items:.4g}"),
                "ideal": items / (percent / 100),
                "percent": round(percent, 1),
                "label": f"{number(percent)} %",
                "label_at": items / (percent / 100) if _NEAR_IDEAL_PERCENT < percent < 100 else items,
                "room": LABEL_ROOM * max(items, items / (percent / 100)),
            }


def _percent(row: Row) -> float | None:
    return row.percent_of_limit if row.percent_of_limit is not None else row.percent_of_single
