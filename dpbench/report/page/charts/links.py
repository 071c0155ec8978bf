"""Bytes by link of one step, counted exactly on simulated devices: as a matrix and as a drawing of the machine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import cos, pi, sin

from dpbench.report.headline import place
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import INK, MUTED, PAPER, chart, series, tooltip
from dpbench.report.units import byte_unit, number
from dpbench.results.counts import CountRecord
from dpbench.sweep.case import Case

_CELL_PX = 38
_DRAWING_PX = 320
_AXIS = {"labelAngle": 0, "ticks": False, "domain": False}


def link_matrix(found: MachineResults) -> Panel | None:
    """Return the matrix from x to; None without counted copies."""
    rows = {key: _matrix_rows(links) for key, links in _counted(found.counts).items()}
    if not rows:
        return None
    cell = {
        "y": {"field": "source", "type": "nominal", "title": "from", "axis": _AXIS},
        "x": {"field": "target", "type": "nominal", "title": "to", "axis": {**_AXIS, "orient": "top"}},
    }
    strength = {"field": "mib", "type": "quantitative", "scale": {"range": [0.06, 0.5], "zero": True}, "legend": None}
    spec = chart(
        {
            "mark": {"type": "rect", "color": series(1), "stroke": PAPER, "strokeWidth": 2, "cornerRadius": 4},
            "encoding": {**cell, "fillOpacity": strength, "tooltip": _TIP},
        },
        {"mark": {"type": "text", "color": INK}, "encoding": {**cell, "text": {"field": "shown"}}},
        height={"step": _CELL_PX},
    )
    return _panel("link-matrix", "Bytes by link", "What goes from each device to each other in one step.", rows, spec)


def link_drawing(found: MachineResults) -> Panel | None:
    """Return the devices on a circle with a line for each pair that copies; None without counted copies."""
    rows = {key: _drawing_rows(links) for key, links in _counted(found.counts).items()}
    if not rows:
        return None
    ends: dict[str, object] = {
        **{axis: {"field": axis, "type": "quantitative", "axis": None, "scale": _CIRCLE} for axis in ("x", "y")},
        **{axis: {"field": axis} for axis in ("x2", "y2")},
    }
    width = {"field": "mib", "type": "quantitative", "scale": {"range": [1, 14], "zero": True}, "legend": None}
    nodes = {axis: ends[axis] for axis in ("x", "y")}
    spec = chart(
        {
            "mark": {"type": "rule", "color": series(1), "opacity": 0.6, "strokeCap": "round"},
            "encoding": {**ends, "strokeWidth": width, "tooltip": _TIP},
        },
        {"mark": {"type": "point", "size": 1500, "color": PAPER, "stroke": MUTED}, "encoding": nodes},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {**nodes, "text": {"field": "source"}}},
        height=_DRAWING_PX,
    )
    text = "The devices of one step. The more bytes a pair sends to each other, the wider its line."
    return _panel("link-drawing", "The machine as the step uses it", text, rows, spec)


_CIRCLE = {"domain": [-1.3, 1.9], "nice": False}
_TIP = tooltip(("source", "from"), ("target", "to"), ("shown", "bytes"), ("copies", "copies"))


def _panel(
    name: str, title: str, text: str, rows: Mapping[str, Sequence[DataRow]], spec: Mapping[str, object]
) -> Panel:
    columns = (
        *(Shown("source", "from"), Shown("target", "to")),
        *(Shown("shown", "bytes"), Shown("copies", "copies")),
    )
    text += " Counted exactly on simulated devices, not measured."
    return Panel(
        name, title, text, columns, rows, spec, "counted", labels={key: key.replace("|", ", ") for key in rows}
    )


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
    """Return a row for each pair of devices with the bytes of both directions, and one for each device alone."""
    names = sorted({name for pair in links for name in pair if name != "host"})
    places = {"host": (1.6, 0.0)} | {
        name: (sin(2 * pi * i / len(names)), cos(2 * pi * i / len(names))) for i, name in enumerate(names)
    }
    pairs: dict[tuple[str, str], tuple[int, int]] = {}
    for (source, target), (size, copies) in links.items():
        pair = (min(source, target), max(source, target))
        known = pairs.get(pair, (0, 0))
        pairs[pair] = (known[0] + size, known[1] + copies)
    pairs |= {(name, name): (0, 0) for name in sorted({name for pair in links for name in pair})}
    return [{**_row(a, b, size, copies), **_ends(places[a], places[b])} for (a, b), (size, copies) in pairs.items()]


def _row(source: str, target: str, size: int, copies: int) -> dict[str, str | float | int]:
    unit, name = byte_unit([size])
    return {
        "source": source,
        "target": target,
        "mib": round(size / 2**20, 4),
        "shown": f"{number(size / unit)} {name}",
        "copies": copies,
    }


def _ends(source: tuple[float, float], target: tuple[float, float]) -> dict[str, float]:
    return {"x": source[0], "y": source[1], "x2": target[0], "y2": target[1]}
