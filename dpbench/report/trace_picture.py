"""A trace as one SVG: variants below each other on one time axis.

    tuned: 26.9 ms
    main thread          |====|  |==|
    device 0  stream 1   |..====....===|          . waits, hatched
              stream 2   |      ===    |
                         0      10     20 ms

A span that is narrower than a part of a pixel is drawn together with its neighbours.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from itertools import groupby
from math import floor, log10
from textwrap import wrap

from dpbench.records.count_record import Phase
from dpbench.report.trace_text import source_words, words
from dpbench.text.outside import printable
from dpbench.text.quantities import time_unit
from dpbench.trace.timeline import Doing, Moved, Row, Source, Span, Timeline, Trace, Wait

WAIT, PATH, OTHER = "wait", "critical path", "other"
WIDTH, _LEFT, _RIGHT = 1200, 250, 24
_PLOT = WIDTH - _LEFT - _RIGHT
_ROW, _BAR, _PATH_BAR, _LINE, _LEGEND_WIDTH, _TICKS = 15, 11, 3, 19, 165, 8
_LETTERS = {"head": 88, "name": 112, "muted": 170}
"""How many letters of a style fit into a line."""
_JOINED_PX, _LEAST_WAIT_PX, _LEAST_PX = 0.6, 1.0, 0.4
"""Bars of one kind are joined if the gap between them is narrower than the first."""
_ASSETS = files("dpbench.report.page") / "assets"
# A phone would shrink a picture that is opened alone: texts of 4 pixels. The prefix hides this from an HTML parser.
_ON_A_PHONE = (
    '<h:meta xmlns:h="http://www.w3.org/1999/xhtml" name="viewport" '
    'content="width=device-width, initial-scale=1, minimum-scale=0.1"/>'
)
_HATCH = (
    '<defs><pattern id="trace-wait" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch" width="1.6" height="6"/></pattern></defs>'
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A bar in pixels. It stands for `spans` spans, of which `text` names the first."""

    kind: str
    x: float
    width: float
    text: str
    spans: int = 1


def bars_of(timeline: Timeline, pixels: float) -> dict[Row, list[Drawn]]:
    """By row, if a second or unit is so many pixels wide. Waits are first, the path is last."""

    def drawn(kind: str, timed: Span | Wait, text: str) -> tuple[Row, Drawn]:
        return timed.row, Drawn(kind, timed.start * pixels, (timed.finish - timed.start) * pixels, text)

    waits = [drawn(WAIT, wait, f"for {_what(timeline.spans[wait.cause])}") for wait in timeline.waits()]
    spans = sorted(timeline.spans, key=lambda span: (span.start, span.finish))
    layers = (
        [(row, wait) for row, wait in waits if wait.width >= _LEAST_WAIT_PX],
        [drawn(kind_of(span), span, _what(span)) for span in spans],
        [drawn(PATH, timeline.spans[i], _what(timeline.spans[i])) for i in timeline.path],
    )
    return {
        row: [bar for layer in layers for bar in _joined(own for place, own in layer if place == row)]
        for row in timeline.rows
    }


def kind_of(span: Span) -> str:
    """What a span's colour stands for: what it moves, its phase, or ``host`` with its phase."""
    if span.doing is Doing.MOVE:
        return span.moved or Moved.BYTES
    if span.phase not in list(Phase):
        return OTHER
    return f"host {span.phase}" if span.doing is Doing.HOST else span.phase


def _what(span: Span) -> str:
    lane = "" if span.lane is None else f" of lane {span.lane}"
    return span.name if span.moved is None else f"the {span.moved}{lane} ({span.name})"


def _joined(bars: Iterable[Drawn]) -> list[Drawn]:
    """One bar for bars of one kind; they are sorted by their begin."""
    joined: list[Drawn] = []
    for bar in bars:
        last = joined[-1] if joined else None
        if last is not None and bar.kind == last.kind and bar.x - last.x - last.width < _JOINED_PX:
            joined[-1] = replace(last, width=bar.x + bar.width - last.x, spans=last.spans + 1)
        elif bar.width > 0:
            joined.append(bar)
    return joined


def svg(trace: Trace) -> str:
    """A document of its own."""
    body = _Body(trace)
    size = f'viewBox="0 0 {WIDTH} {body.y}" width="{WIDTH}" height="{body.y}"'
    described = [
        source_words(trace.source),
        *(line for variant in trace.variants for line in words(variant, trace.source)),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="trace" role="img" '
        'aria-labelledby="trace-title trace-desc">',
        f'<title id="trace-title">{_text(f"{trace.title}, {trace.source}")}</title>',
        f'<desc id="trace-desc">{escape(printable(chr(10).join(described)))}</desc>',
        _ON_A_PHONE,
        f"<style>{style()}</style>",
        _HATCH,
        f'<rect class="paper" width="{WIDTH}" height="{body.y}"/>',
        *body.parts,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Body:
    """The parts of the picture from the top down; `y` is where the next one goes."""

    def __init__(self, trace: Trace) -> None:
        timelines = [variant.timeline for variant in trace.variants if variant.timeline is not None]
        self._longest = max((timeline.length for timeline in timelines), default=0.0) or 1.0
        is_simulated = trace.source is Source.SIMULATED
        self._unit, self._unit_name = (1.0, "units") if is_simulated else time_unit([self._longest])
        self.parts: list[str] = []
        self.y = 32
        self._words("head", trace.title)
        self._words("muted", source_words(trace.source))
        bars = [bars_of(timeline, _PLOT / self._longest) for timeline in timelines]
        self._legend(list(dict.fromkeys(bar.kind for rows in bars for row in rows.values() for bar in row)))
        for variant in trace.variants:
            heading, *others = words(variant, trace.source)
            self._words("name", heading)
            for line in others:
                self._words("muted", line)
            if variant.timeline is not None:
                self._timeline(bars.pop(0))

    def _words(self, kind: str, text: str) -> None:
        for line in wrap(printable(text), _LETTERS[kind]):
            self._label(16, self.y, kind, line)
            self.y += _LINE

    def _label(self, x: float, y: int, kind: str, text: str) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y}" class="{kind}">{_text(text)}</text>')

    def _legend(self, kinds: list[str]) -> None:
        columns = (WIDTH - 2 * 16) // _LEGEND_WIDTH
        for place, kind in enumerate(kinds):
            x, y = 16 + place % columns * _LEGEND_WIDTH, self.y + place // columns * _LINE
            self.parts.append(f'<rect x="{x}" y="{y - 10}" width="14" height="{_BAR}" class="{_class(kind)}"/>')
            self._label(x + 20, y, "label", kind)
        self.y += (len(kinds) // columns + 2) * _LINE

    def _timeline(self, rows: dict[Row, list[Drawn]]) -> None:
        top, behind = self.y, len(self.parts)
        for group, own in groupby(rows, key=lambda row: row.group):
            self.y += 4
            self.parts.append(f'<line x1="16" x2="{WIDTH - _RIGHT}" y1="{self.y - 2}" y2="{self.y - 2}"/>')
            self._label(16, self.y + 10, "label", group)
            for row in own:
                self._label(_LEFT - 8, self.y + 10, "row", row.name)
                self.parts += ["<g>", *(_rect(bar, self.y) for bar in rows[row]), "</g>"]
                self.y += _ROW
        self._axis(top, behind)

    def _axis(self, top: int, behind: int) -> None:
        """Below the rows, with lines behind them: in front of the part at this place."""
        step = round_step(self._longest / self._unit / _TICKS)
        bottom = self.y + 2
        for tick in range(int(self._longest / self._unit / step + 1e-9) + 1):
            x = _LEFT + tick * step * self._unit / self._longest * _PLOT
            self.parts.insert(behind, f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{bottom}"/>')
            self._label(x, bottom + 13, "tick", f"{tick * step:.10g}")
        self._label(_LEFT - 8, bottom + 13, "row", self._unit_name)
        self.y = bottom + 46


def _rect(bar: Drawn, y: int) -> str:
    height, top = (_PATH_BAR, y + _BAR) if bar.kind == PATH else (_BAR, y)
    place = f'x="{_LEFT + bar.x:.1f}" y="{top}" width="{max(bar.width, _LEAST_PX):.1f}" height="{height}"'
    text = bar.text if bar.spans == 1 else f"{bar.spans} spans, from {bar.text} on"
    return f'<rect {place} class="{_class(bar.kind)}"><title>{_text(f"{bar.kind}: {text}")}</title></rect>'


def round_step(least: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is at least this."""
    power = 10.0 ** floor(log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _class(kind: str) -> str:
    return kind.replace(" ", "-")


def _text(text: str) -> str:
    return escape(printable(text).replace("\n", " "), quote=True)


def style() -> str:
    """The rules of the picture in the page's colours, light and dark.

    Colours are literal, because many programs other than browsers draw `var()` black. Every rule is of the picture
    alone, because a page may have the picture inside.
    """
    rules = (_ASSETS / "trace.css").read_text(encoding="utf-8")
    light, _, dark = (_ASSETS / "page.css").read_text(encoding="utf-8").partition("prefers-color-scheme: dark")
    return f"{_coloured(rules, light)}@media screen and (prefers-color-scheme: dark) {{\n{_coloured(rules, dark)}}}"


def _coloured(rules: str, page: str) -> str:
    colours = dict(re.findall(r"--(\w+): (#\w+)", page))
    return re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]], rules)
