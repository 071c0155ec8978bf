"""Charts as data: Vega-Lite in charts/*.vl.json, and what differs from machine to machine.

In a file, ``"$colour"`` stands for a value that the caller gives, or that the file itself has under ``"names"``.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

LABEL_ROOM = 1.25
"""Labels stand behind bars. An axis that ends so far behind the longest bar leaves room for them."""
STEP_PX, _TWO_LINES_PX = 26, 38
"""The height of a row of bars or points, and of one whose label has two lines."""
Spec = dict[str, Any]
_WHOLE: Spec = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
    "width": "container",
    "autosize": {"type": "fit-x", "contains": "padding"},
}
# A variant with parameters gets a second line for them. Its first line then stands above the middle of the row.
_ROW_AXIS = {
    "ticks": False,
    "domain": False,
    "labelExpr": "split(replace(datum.label, ']', ''), '[', 2)",
    "labelBaseline": {"condition": {"test": "indexof(datum.label, '[') >= 0", "value": "bottom"}, "value": "middle"},
}


def drawn(chart: str, columns: Mapping[str, str], **values: object) -> Spec:
    """Return the specification of a chart, as wide as the page and without its data. Raise KeyError without a value.

    `columns` are those of its table, by field: a tooltip has the same. `height` is a value unless the file has it.
    """
    spec = json.loads(_text(chart))
    tooltip = [{"field": field, "title": header} for field, header in columns.items()]
    given = {"rows": rows_of(), "columns": tooltip, **values}
    return {**_WHOLE, "height": values.get("height"), **_filled(spec, spec.pop("names", {}), given)}


@cache
def _text(chart: str) -> str:
    return (files("dpbench.report.page.charts") / f"{chart}.vl.json").read_text(encoding="utf-8")


def _filled(value: Any, own: Mapping[str, Any], given: Mapping[str, object]) -> Any:
    """Return the value with names filled in. What the caller gives may be any text, so it stays as it is."""
    if isinstance(value, str) and value.startswith("$"):
        return _filled(own[value[1:]], own, given) if value[1:] in own else given[value[1:]]
    if isinstance(value, dict):
        return {key: _filled(each, own, given) for key, each in value.items()}
    return [_filled(each, own, given) for each in value] if isinstance(value, list) else value


def rows_of(field: str = "variant") -> Spec:
    """Return the y channel with a row for each value, in the order of the data."""
    return {"field": field, "type": "nominal", "sort": None, "title": None, "axis": _ROW_AXIS}


def row_step(names: Iterable[object], least: int = STEP_PX) -> dict[str, int]:
    """Return the height of the rows of these names, with room for the parameters of variants."""
    return {"step": max(least, _TWO_LINES_PX) if any("[" in str(name) for name in names) else least}
