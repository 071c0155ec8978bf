"""The builder of all charts: which fields of the rows are drawn, along which axes, in which colours. Vega-Lite.

A chart names its fields to one of these:

    intervals    a row for each name: a dot with its interval, and a mark at 1
    bars         a row for each name: bars, their labels behind them
    cells        a map of two names, with a text in each cell
    chart        any layers: dots or lines over devices, commits or the time

A layer with `tip` shows a tooltip: the columns of the chart's table.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dpbench.report.page.theme import INK, MUTED, PAPER, TWO_LINES_PX

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
LABEL_ROOM = 1.25
"""Labels stand behind bars. An axis that ends so far behind the longest bar leaves room for them."""
STEP_PX = 26
"""The height of a row of bars or points."""
Spec = dict[str, Any]
# A variant with parameters gets a second line for them. Its first line then stands above the middle of the row.
_ROW_AXIS = {
    "ticks": False,
    "domain": False,
    "labelExpr": "split(replace(datum.label, ']', ''), '[', 2)",
    "labelBaseline": {"condition": {"test": "indexof(datum.label, '[') >= 0", "value": "bottom"}, "value": "middle"},
}
_NAMES_AXIS: Spec = {"labelAngle": 0, "ticks": False, "domain": False}


def chart(*layers: Spec, height: int | Mapping[str, int]) -> Spec:
    """Return a specification as wide as the page, without its data."""
    size = {"width": "container", "height": height, "autosize": {"type": "fit-x", "contains": "padding"}}
    return {"$schema": SCHEMA, **size, "layer": list(layers)}


def layer(
    mark: str, look: Mapping[str, object] | None = None, *, tip: object = False, where: str = "", **channels: Any
) -> Spec:
    """Return a layer of marks. A channel that is a text is the field of its numbers, and `where` a filter of the rows.

    `tip` may be the columns of a tooltip of its own.
    """
    encoding = {
        name: ({"field": each} if name in ("x2", "y2", "text") else {"field": each, "type": "quantitative"})
        if isinstance(each, str)
        else each
        for name, each in channels.items()
    }
    own: Spec = {"mark": {"type": mark, **(look or {})}, "encoding": encoding}
    return own | ({"transform": [{"filter": where}]} if where else {}) | ({"tip": tip} if tip else {})


def with_tooltips(spec: Mapping[str, Any], columns: Mapping[str, str]) -> Spec:
    """Return the specification with the tooltips that its layers ask for."""
    layers = []
    for own in spec["layer"]:
        shown = own.get("tip") and (columns if own["tip"] is True else own["tip"])
        tooltip = [{"field": field, "title": header} for field, header in (shown or {}).items()]
        bare = {name: value for name, value in own.items() if name != "tip"}
        layers.append({**bare, "encoding": own["encoding"] | ({"tooltip": tooltip} if tooltip else {})})
    return {**spec, "layer": layers}


def number_axis(field: str, title: str, *, log: bool = False, zero: bool = True) -> Spec:
    """Return a channel of numbers."""
    scale: Spec = {"type": "log", "nice": False, "padding": 12} if log else {"zero": zero, "nice": True}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": {"tickCount": 6}}


def names_axis(field: str, title: str | None = None, *, is_sorted: bool = False, **axis: object) -> Spec:
    """Return a channel with a place for each name, in the order of the data if it is not sorted."""
    order = {} if is_sorted else {"sort": None}
    return {"field": field, "type": "nominal", **order, "title": title, "axis": {**_NAMES_AXIS, **axis}}


def rows_of(field: str = "variant") -> Spec:
    """Return the y channel with a row for each value, in the order of the data."""
    return {"field": field, "type": "nominal", "sort": None, "title": None, "axis": _ROW_AXIS}


def row_step(names: Iterable[object], least: int = STEP_PX) -> dict[str, int]:
    """Return the height of the rows of these names, with room for the parameters of variants."""
    return {"step": max(least, TWO_LINES_PX) if any("[" in str(name) for name in names) else least}


def intervals(
    x: Spec, colour: Spec, height: Mapping[str, int], y: str = "variant", *, one: bool = True, labels: bool = False
) -> Spec:
    """Return dots in rows with the interval from `low` to `high`.

    There is a mark at `one`. With `labels` each dot has its `label`::

        tuned   ──●──
        naive     ┊    ───●───
        fsdp      ┊            ● 31.0 ▸     cut, because it would squash the others
    """
    rows = rows_of(y)
    written = {"align": "left", "baseline": "bottom", "dy": -6, "dx": 4, "color": INK, "fontSize": 11}
    layers = [
        layer("rule", {"strokeWidth": 3}, y=rows, x="low", x2="high", color=colour),
        layer("point", {"size": 110}, y=rows, x=x, color=colour, tip=True),
    ]
    if one:
        layers.insert(0, layer("rule", {"strokeDash": [4, 3], "color": MUTED}, x={"datum": 1.0}))
    if labels:  # the first of both is wider: it clears the dashed line behind the text
        looks = ({**written, "stroke": PAPER, "strokeWidth": 3}, written)
        layers += [layer("text", look, y=rows, x=x, text="label") for look in looks]
    return chart(*layers, height=height)


def bars(x: Spec, colour: Spec, height: Mapping[str, int], *layers: Spec, **more: Any) -> Spec:
    """Return bars in rows, below other layers. `more` are further channels, and the mark's `look`."""
    look = {"height": {"band": 0.6}, **more.pop("look", {})}
    own = layer("bar", look, y=rows_of(), **more, x=x, color=colour, tip=True)
    return chart(own, *layers, height=height)


def bar_labels(x: str) -> tuple[Spec, Spec]:
    """Return the layers of the rows' `label`, behind the bars at the field `x`.

    The second is not seen. It extends the x axis to the rows' field `room`.
    """
    label = layer("text", {"align": "left", "dx": 6, "fontSize": 11}, y=rows_of(), x=x, text="label")
    return label, layer("point", {"color": "transparent", "size": 0, "tooltip": None}, x="room")


def cells(x: Spec, y: Spec, text: str, strength: str, colour: str, *, px: int) -> Spec:
    """Return a rectangle for each pair of names, with a text in it. The larger its number `strength`, the stronger."""
    scale = {"range": [0.06, 0.5], "zero": True}
    fill = {"field": strength, "type": "quantitative", "scale": scale, "legend": None}
    look = {"stroke": PAPER, "strokeWidth": 2, "cornerRadius": 4, "color": colour}
    return chart(
        layer("rect", look, x=x, y=y, fillOpacity=fill, tip=True),
        layer("text", {"color": INK}, x=x, y=y, text=text),
        height={"step": px},
    )
