"""Bytes by link of one step, counted exactly on simulated devices: as a matrix and as a drawing of the machine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import cos, hypot, pi, sin

from dpbench.cases.case import Case
from dpbench.records.counts import CountRecord
from dpbench.report.headline import place
from dpbench.report.page.drawing import cells, chart, layer, names_axis, strength
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.report.page.theme import MUTED, PAPER, series
from dpbench.report.units import byte_unit, number

_CELL_PX = 38
_DRAWING_PX = 320
_ASIDE, _DOT = 0.05, 0.65
"""How far a line is from the middle of both directions, the circle's radius being 1; its dot, as a share of the way."""
_ALL = "all together"


def link_matrix(machine_results: MachineResults) -> Panel | None:
    """Return the matrix from x to; None without counted copies."""
    rows = {key: _matrix_rows(links) for key, links in _counted(machine_results.counts).items()}
    if not rows:
        return None
    x, y = names_axis("target", "to", is_sorted=True, orient="top"), names_axis("source", "from", is_sorted=True)
    look = {"color": series(1)}
    spec = cells(x, y, {"text": "shown"}, _COLUMNS, px=_CELL_PX, look=look, fillOpacity=strength("mib"))
    return _panel("link-matrix", "Bytes by link", "What goes from each device to each other in one step.", rows, spec)


def link_drawing(machine_results: MachineResults) -> Panel | None:
    """Return the devices on a circle with a line for each direction of copies; None without counted copies."""
    rows = {key: _drawing_rows(links) for key, links in _counted(machine_results.counts).items()}
    if not rows:
        return None
    nodes, dots = (
        {axis: {"field": f"{of}{axis}", "type": "quantitative", "axis": None, "scale": _CIRCLE} for axis in ("x", "y")}
        for of in ("", "dot_")
    )
    width = {"field": "mib", "type": "quantitative", "scale": {"range": [1, 8], "zero": True}, "legend": None}
    links, devices = ({"field": "is_device", "equal": each} for each in (False, True))
    line = {"color": series(1), "opacity": 0.6, "strokeCap": "round"}
    circle = {"size": 1500, "color": PAPER, "stroke": MUTED}
    spec = chart(
        layer("rule", line, **nodes, x2="x2", y2="y2", strokeWidth=width, columns=_COLUMNS, where=links),
        layer("point", {"size": 90, "color": series(1)}, **dots, columns=_COLUMNS, where=links),
        layer("point", circle, **nodes, where=devices),
        layer("text", {"fontSize": 11}, **nodes, text="source", where=devices),
        height=_DRAWING_PX,
    )
    text = (
        "The devices of one step. A line is one direction, and its dot is nearer to the device that receives. The more "
        "bytes, the wider the line."
    )
    return _panel("link-drawing", "The machine as the step uses it", text, rows, spec)


_CIRCLE = {"domain": [-1.3, 1.9], "nice": False}
_COLUMNS = {"source": "from", "target": "to", "shown": "bytes", "copies": "copies"}


def _panel(
    name: str, title: str, text: str, rows: Mapping[str, Sequence[DataRow]], spec: Mapping[str, object]
) -> Panel:
    text += " Counted exactly on simulated devices, not measured."
    labels = {key: key.replace("|", ", ") for key in rows}
    return Panel(name, title, text, _COLUMNS, rows, spec, "counted", labels=labels)


_Links = Mapping[tuple[str, str], tuple[int, int]]
"""Bytes and copies by source and target."""


def _counted(counts: Sequence[CountRecord]) -> dict[str, _Links]:
    found = {_label(record.case): _links(record) for record in counts}
    return {key: links for key, links in found.items() if links}


def _label(case: Case) -> str:
    return f"{case.variant}: {place(case)}, {case.mode}, {case.dtype}"


def _links(record: CountRecord) -> _Links:
    sizes: Counter[tuple[str, str]] = Counter()
    copies: Counter[tuple[str, str]] = Counter()
    for phase in record.counts.phases.values() if record.counts else ():
        for name, traffic in (phase.copies or {}).items():
            source, _, target = name.partition("->")
            if source != target:
                sizes[source, target] += traffic.size_bytes
                copies[source, target] += traffic.count
    return {pair: (size, copies[pair]) for pair, size in sorted(sizes.items())}


def _matrix_rows(links: _Links) -> list[DataRow]:
    return [_row(source, target, size, copies) for (source, target), (size, copies) in links.items()]


def _drawing_rows(links: _Links) -> list[DataRow]:
    """Return a row for each direction of a pair, and one for each device with all that it sends."""
    names = sorted({name for pair in links for name in pair if name != "host"})
    places = {"host": (1.6, 0.0)} | {
        name: (sin(2 * pi * i / len(names)), cos(2 * pi * i / len(names))) for i, name in enumerate(names)
    }
    lines = [
        {**_row(source, target, size, copies), **_line(places[source], places[target]), "is_device": False}
        for (source, target), (size, copies) in links.items()
    ]
    devices = []
    for name in sorted({name for pair in links for name in pair}):
        size, copies = (sum(sent[i] for (source, _), sent in links.items() if source == name) for i in (0, 1))
        x, y = places[name]
        devices.append({**_row(name, _ALL, size, copies), "x": x, "y": y, "is_device": True})
    return [*lines, *devices]


def _row(source: str, target: str, size: int, copies: int) -> dict[str, str | float | int]:
    unit, name = byte_unit([size])
    return {
        "source": source,
        "target": target,
        "mib": round(size / 2**20, 4),
        "shown": f"{number(size / unit)} {name}",
        "copies": copies,
    }


def _line(source: tuple[float, float], target: tuple[float, float]) -> dict[str, float]:
    """Return the ends of a line and its dot, moved to the right of its direction: the way back is beside it."""
    along = target[0] - source[0], target[1] - source[1]
    length = hypot(*along)
    aside = along[1] / length * _ASIDE, -along[0] / length * _ASIDE
    x, y = (source[i] + aside[i] for i in (0, 1))
    dot_x, dot_y = (start + _DOT * way for start, way in zip((x, y), along, strict=True))
    return {"x": x, "y": y, "x2": x + along[0], "y2": y + along[1], "dot_x": dot_x, "dot_y": dot_y}
