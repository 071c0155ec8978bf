"""Charts as data: Vega-Lite in charts/*.vl.json, what differs from machine to machine, and the colours.

In a file, ``"$colour"`` stands for a value that the caller gives, or that the file itself has under ``"names"``. A
colour is a CSS variable, so a chart follows the reader's light or dark setting without being drawn again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from dpbench.cases.variants import VariantId, VariantName

LABEL_ROOM = 1.25
"""Labels stand behind bars. An axis that ends so far behind the longest bar has room for them."""
STEP_PX = 26
"""The height of a row of bars or points."""
_TWO_LINES_PX = 38
"""The height of a row whose label has two lines."""
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
    """A chart's specification, as wide as the page and without its data. Raise KeyError without a value.

    `columns` are those of its table, by field: a tooltip has the same. `height` is a value unless the file has it.
    """
    spec = json.loads(_text(chart))
    tooltip = [{"field": field, "title": header} for field, header in columns.items()]
    values_by_name = {"rows": rows_of(), "columns": tooltip, **values}
    return {**_WHOLE, "height": values.get("height"), **_filled(spec, spec.pop("names", {}), values_by_name)}


@cache
def _text(chart: str) -> str:
    return (files("dpbench.report.page.charts") / f"{chart}.vl.json").read_text(encoding="utf-8")


def _filled(value: Any, spec_names: Mapping[str, Any], values_by_name: Mapping[str, object]) -> Any:
    """The value with names filled in. What the caller gives may be any text, so it stays as it is."""
    if isinstance(value, str) and value.startswith("$"):
        name = value[1:]
        return _filled(spec_names[name], spec_names, values_by_name) if name in spec_names else values_by_name[name]
    if isinstance(value, dict):
        return {key: _filled(part, spec_names, values_by_name) for key, part in value.items()}
    return [_filled(part, spec_names, values_by_name) for part in value] if isinstance(value, list) else value


def axis_of(field: str, title: str, **scale: object) -> Spec:
    """The channel of the drawn value. Its axis begins at 0 unless `scale` has another one."""
    whole = scale or {"zero": True, "nice": True}
    return {"field": field, "type": "quantitative", "title": title, "scale": whole, "axis": {"tickCount": 6}}


LOG = {"type": "log", "nice": False, "padding": 12}
"""The scale of ratios and of values that differ widely."""


def rows_of(field: str = "variant") -> Spec:
    """The y channel with a row for each value, in the order of the data."""
    return {"field": field, "type": "nominal", "sort": None, "title": None, "axis": _ROW_AXIS}


def row_step(names: Iterable[object], least: int = STEP_PX) -> dict[str, int]:
    """The height of the rows of these names, with room for the parameters of variants."""
    return {"step": max(least, _TWO_LINES_PX) if any("[" in str(name) for name in names) else least}


MUTED, GOOD, BAD = (f"var(--{name})" for name in ("muted", "good", "bad"))
_SERIES = 10
_PLACES: Mapping[str, int] = {
    VariantName.TUNED: 0,
    VariantName.DDP: 1,
    VariantName.NAIVE: 2,
    VariantName.TORCH_DP: 2,
    VariantName.FLOOR: 3,
    VariantName.SINGLE: 4,
}
"""The colours of the schemes, the same in all charts. naive is torch_dp's algorithm, so they share one."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")


def coloured(field: str, colours: Sequence[tuple[str, str]], *, legend: bool = True) -> dict[str, Any]:
    scale = {"domain": [name for name, _ in colours], "range": [colour for _, colour in colours]}
    channel: dict[str, Any] = {"field": field, "type": "nominal", "scale": scale, "title": None}
    return channel if legend else {**channel, "legend": None}


def shaped(field: str, colours: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A shape channel that tells apart values of one colour. Its legend is the colours' one."""
    used: dict[str, int] = {}
    shapes = []
    for name, colour in colours:
        used[colour] = used.get(colour, -1) + 1
        shapes.append((name, _SHAPES[used[colour] % len(_SHAPES)]))
    return coloured(field, shapes)


def variant_colours(variants: Sequence[VariantId]) -> list[tuple[str, str]]:
    """A scheme has its own colour; others get the next free one."""
    taken = {_PLACES[variant.name] for variant in variants if _is_scheme(variant)}
    free = [place for place in range(_SERIES) if place not in taken] or list(range(_SERIES))
    colours, used = [], 0
    for variant in variants:
        if _is_scheme(variant):
            place = _PLACES[variant.name]
        else:
            place, used = free[used % len(free)], used + 1
        colours.append((str(variant), series(place)))
    return colours


def series(place: int) -> str:
    return f"var(--c{place % _SERIES})"


def _is_scheme(variant: VariantId) -> bool:
    return variant.name in _PLACES and str(variant) == str(variant.name)
