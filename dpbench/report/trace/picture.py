"""A trace as one SVG: variants below each other on one time axis. It runs nothing, and loads nothing.

    tuned: 26.9 ms
    main thread          |====|  |==|
    device 0  stream 1   |..====....===|          . waits, hatched
              stream 2   |      ===    |
    links     up 1       |  ===        |
                         0      10     20 ms

A span that is narrower than a part of a pixel is drawn together with its neighbours.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from textwrap import wrap

from dpbench.records.counts import Phase
from dpbench.report.page.theme import BAD, INK, LINE, MUTED, PAPER, series
from dpbench.report.trace.text import axis_unit, description, heading, source_words, sub_heading
from dpbench.text.outside import printable
from dpbench.trace.critical import waits
from dpbench.trace.timeline import Doing, Moved, Span, Timeline, Trace, VariantTrace, sorted_rows

_JOINED_PX = 0.6
"""Bars of one kind are joined if the gap between them is narrower."""
_LEAST_WAIT_PX = 1.0
_LEAST_PX = 0.4


@dataclass(frozen=True, slots=True)
class Drawn:
    """A bar from `x` on, `width` wide, in pixels. `text` is its tooltip."""

    kind: str
    x: float
    width: float
    text: str


def drawn_rows(timeline: Timeline, pixels: float) -> list[list[Drawn]]:
    """Return the bars of each row, if a second or unit is so many pixels wide. Waits are first, the path is last."""
    rows: list[list[Drawn]] = [[] for _ in timeline.rows]
    for wait in waits(timeline):
        if (wait.finish - wait.start) * pixels >= _LEAST_WAIT_PX:
            text = f"waits for {_what(timeline.spans[wait.cause])}"
            rows[wait.row].append(Drawn(WAIT, wait.start * pixels, (wait.finish - wait.start) * pixels, text))
    own: list[list[tuple[str, Span]]] = [[] for _ in timeline.rows]
    on_path: list[list[Span]] = [[] for _ in timeline.rows]
    for span in timeline.spans:
        for row in span.rows:
            own[row].append((kind_of(span), span))
    for i in timeline.path:
        for row in timeline.spans[i].rows:
            on_path[row].append(timeline.spans[i])
    for row in range(len(rows)):
        rows[row] += _joined(own[row], pixels)
        rows[row] += _joined(((PATH, span) for span in on_path[row]), pixels)
    return rows


def _what(span: Span) -> str:
    if span.moved is None:
        return span.name
    return f"the {span.moved}" + ("" if span.lane is None else f" of lane {span.lane}") + f" ({span.name})"


@dataclass
class _Open:
    kind: str
    start: float
    finish: float
    names: list[str]


def _joined(found: Iterable[tuple[str, Span]], pixels: float) -> Iterator[Drawn]:
    """Return a bar for each run of spans of one kind."""
    last: _Open | None = None
    for kind, span in sorted(found, key=lambda each: (each[1].start, each[1].finish)):
        start, finish = span.start * pixels, span.finish * pixels
        if finish - start < 1e-9:
            continue
        if last is not None and start - last.finish < _JOINED_PX and kind == last.kind:
            last.finish = finish
            last.names.append(_what(span))
            continue
        if last is not None:
            yield _bar(last)
        last = _Open(kind, start, finish, [_what(span)])
    if last is not None:
        yield _bar(last)


def _bar(found: _Open) -> Drawn:
    text = found.names[0] if len(found.names) == 1 else f"{len(found.names)} spans, from {found.names[0]} on"
    name = "critical path" if found.kind == PATH else "other" if found.kind == MIXED else found.kind
    return Drawn(found.kind, found.start, max(found.finish - found.start, _LEAST_PX), f"{name}: {text}")


WIDTH, _LEFT, _RIGHT = 1200, 250, 24
_PLOT = WIDTH - _LEFT - _RIGHT
_ROW, _BAR, _LINE = 15, 11, 19
_TICKS = 8
_LETTERS = {"head": 88, "name": 112, "muted": 170}
_LEGEND_WIDTH = 165
_ON_A_PHONE = (
    '<h:meta xmlns:h="http://www.w3.org/1999/xhtml" name="viewport" '
    'content="width=device-width, initial-scale=1, minimum-scale=0.1"/>'
)
"""Without this, a phone shrinks a picture that is opened alone to the width of its screen: texts of 4 pixels.

With it the picture opens in full size and scrolls sideways, and two fingers shrink it. The prefix hides it from an HTML
parser, which would end the picture at a `meta`.
"""


def svg(trace: Trace) -> str:
    """Return the picture as a document of its own."""
    body = _Body(trace)
    body.draw()
    title = f"{trace.title}, {trace.source}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {body.y}" width="{WIDTH}" '
            f'height="{body.y}" class="{PICTURE}" role="img" aria-labelledby="trace-title trace-desc">',
            f'<title id="trace-title">{_text(title)}</title>',
            f'<desc id="trace-desc">{_text(description(trace))}</desc>',
            _ON_A_PHONE,
            f"<style>{style()}</style>",
            '<defs><pattern id="trace-wait" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect class="hatch" width="1.6" height="6"/></pattern></defs>',
            f'<rect class="paper" width="{WIDTH}" height="{body.y}"/>',
            *body.parts,
            "</svg>",
            "",
        ]
    )


class _Body:
    """The parts of the picture from the top down; `y` is where the next one goes."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        found = [variant.timeline for variant in trace.variants if variant.timeline is not None]
        longest = max((timeline.length for timeline in found), default=0.0)
        self._longest = longest or 1.0
        self.parts: list[str] = []
        self.y = 34

    def draw(self) -> None:
        self._words(self._trace.title, "head", 10)
        self._words(source_words(self._trace.source), "muted", 4)
        self._legend()
        for variant in self._trace.variants:
            self._variant(variant)
        for note in self._trace.notes:
            self._words(note, "muted")
        self.y += 4

    def _words(self, text: str, kind: str, space: int = 0) -> None:
        for line in wrap(printable(text), _LETTERS[kind]):
            self.parts.append(f'<text x="16" y="{self.y}" class="{kind}">{_text(line)}</text>')
            self.y += _LINE
        self.y += space

    def _legend(self) -> None:
        x = 16
        for name, label in LEGEND:
            if x + _LEGEND_WIDTH > WIDTH:
                x, self.y = 16, self.y + _LINE
            self.parts.append(f'<rect x="{x}" y="{self.y - 10}" width="14" height="11" class="{name}"/>')
            self.parts.append(f'<text x="{x + 20}" y="{self.y}" class="label">{_text(label)}</text>')
            x += _LEGEND_WIDTH
        self.y += 2 * _LINE

    def _variant(self, variant_trace: VariantTrace) -> None:
        self._words(heading(variant_trace, self._trace.source), "name")
        for line in sub_heading(variant_trace, self._trace.source):
            self._words(line, "muted")
        if variant_trace.timeline is not None:
            self._timeline(variant_trace.timeline)
        self.y += 14

    def _timeline(self, timeline: Timeline) -> None:
        self.y -= 8
        top, group, behind = self.y, "", len(self.parts)
        rows = drawn_rows(timeline, _PLOT / self._longest)
        for row in sorted_rows(timeline):
            own = timeline.rows[row]
            if own.group != group:
                group = own.group
                self.y += 4
                self.parts.append(f'<line x1="16" x2="{WIDTH - _RIGHT}" y1="{self.y - 2}" y2="{self.y - 2}"/>')
                self.parts.append(f'<text x="16" y="{self.y + 10}" class="label">{_text(group)}</text>')
            name = f"{own.group}, {own.name}"
            self.parts.append(f'<g role="group" aria-label="{_text(name)}">')
            self.parts.append(f'<text x="{_LEFT - 8}" y="{self.y + 10}" class="row">{_text(own.name)}</text>')
            self.parts += _bars(rows[row], self.y)
            self.parts.append("</g>")
            self.y += _ROW
        self._axis(top, behind)

    def _axis(self, top: int, behind: int) -> None:
        """Draw the axis below the rows, and its lines behind them: in front of the part at this place."""
        unit, name = axis_unit(self._trace.source, self._longest)
        step = _round_step(self._longest / unit / _TICKS)
        ticks = [step * i for i in range(int(self._longest / unit / step + 1e-9) + 1)]
        bottom = self.y + 2
        for tick in ticks:
            x = _LEFT + tick * unit / self._longest * _PLOT
            self.parts.insert(behind, f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 2}" y2="{bottom}"/>')
            self.parts.append(f'<text x="{x:.1f}" y="{bottom + 13}" class="tick">{_tick(tick)}</text>')
        self.parts.append(f'<text x="{_LEFT - 8}" y="{bottom + 13}" class="row">{_text(name)}</text>')
        self.y = bottom + 28


def _bars(drawns: Sequence[Drawn], y: int) -> Iterator[str]:
    for drawn in drawns:
        height, top = (3, y + _BAR) if drawn.kind == "path" else (_BAR, y)
        name = CLASSES.get(drawn.kind, drawn.kind)
        place = f'x="{_LEFT + drawn.x:.1f}" y="{top}" width="{drawn.width:.1f}" height="{height}"'
        yield f'<rect {place} class="{name}"><title>{_text(drawn.text)}</title></rect>'


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 or 5 times a power of ten that is at least this."""
    power = 1.0
    while power > least:
        power /= 10
    while power * 10 < least:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def _tick(value: float) -> str:
    return "0" if value == 0 else f"{value:.10g}"


def _text(text: str) -> str:
    return escape(printable(text).replace("\n", " "), quote=True)


_PAGE = files("dpbench.report.page") / "assets" / "page.css"
_OF_PHASE = {Phase.FORWARD: series(0), Phase.BACKWARD: series(3), Phase.OPTIMISER: series(4)}
_OF_MOVED = {
    Moved.INPUTS: series(7),
    Moved.PARAMETERS: series(1),
    Moved.OUTPUTS: series(9),
    Moved.OUTPUT_GRADIENTS: series(8),
    Moved.GRADIENTS: series(5),
    Moved.BYTES: series(2),
}
"""The page's chart of phases has the same: scatter, replicate, gather and reduce."""
PICTURE, WAIT, PATH, MIXED = "trace", "wait", "path", "mixed"
_HOST = "host-"


def kind_of(span: Span) -> str:
    """Return which colour a span gets, as a key of `CLASSES`."""
    if span.doing is Doing.MOVE:
        return str(span.moved or Moved.BYTES)
    return f"{_HOST if span.doing is Doing.HOST else ''}{span.phase}" if span.phase in _COLOURS else MIXED


_COLOURS: dict[str, str] = {str(key): colour for key, colour in (*_OF_PHASE.items(), *_OF_MOVED.items())}
CLASSES = {name: name.replace(" ", "-") for name in _COLOURS} | {
    f"{_HOST}{phase}": f"{_HOST}{phase}" for phase in Phase
}
LEGEND = (
    *((str(phase), f"compute: {phase}") for phase in Phase),
    (f"{_HOST}{Phase.FORWARD}", "host: paler"),
    *((CLASSES[str(moved)], str(moved)) for moved in _OF_MOVED if moved is not Moved.BYTES),
    (WAIT, "waits"),
    (PATH, "critical path"),
)


def style() -> str:
    """Return the rules of the picture: light, and dark for a reader who prefers it.

    Colours are literal, because many programs other than browsers draw `var()` black. Every rule is of the picture
    alone, because a page may have the picture inside.
    """
    fills = {f".{CLASSES[name]}": f"fill:{colour}" for name, colour in _COLOURS.items()}
    fills |= {f".{_HOST}{phase}": f"fill:{colour};opacity:.5" for phase, colour in _OF_PHASE.items()}
    rules = {
        "": f"background:{PAPER};color-scheme:light dark;font:12px system-ui,-apple-system,'Segoe UI',sans-serif",
        "text": f"fill:{INK}",
        "line": f"stroke:{LINE};stroke-width:1",
        ".paper": f"fill:{PAPER}",
        **fills,
        ".muted": f"fill:{MUTED}",
        f".{MIXED}": f"fill:{MUTED}",
        ".row": f"fill:{MUTED};text-anchor:end",
        ".tick": f"fill:{MUTED};text-anchor:middle",
        ".head": "font-size:20px;font-weight:650",
        ".name": "font-size:15px;font-weight:650",
        f".{WAIT}": "fill:url(#trace-wait)",
        ".hatch": f"fill:{MUTED};opacity:.45",
        f".{PATH}": f"fill:{BAD}",
    }
    text = "\n".join(f"{f'.{PICTURE} {selector}'.strip()}{{{rule}}}" for selector, rule in rules.items())
    light, dark = _palettes()
    return f"{_with(light, text)}\n@media screen and (prefers-color-scheme:dark){{\n{_with(dark, text)}\n}}"


def _with(palette: Mapping[str, str], rules: str) -> str:
    return re.sub(r"var\(--(\w+)\)", lambda found: palette[found[1]], rules)


def _palettes() -> tuple[dict[str, str], dict[str, str]]:
    """Return the page's colours by name: for light, and for a reader who prefers dark."""
    light, _, dark = _PAGE.read_text(encoding="utf-8").partition("prefers-color-scheme: dark")
    found = [dict(re.findall(r"--(\w+): (#\w+)", part)) for part in (light, dark)]
    return found[0], found[1]
