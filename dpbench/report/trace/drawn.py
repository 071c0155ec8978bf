"""What is drawn on each row of a picture: bars in pixels, few enough for a browser. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dpbench.report.trace.colours import MIXED, PATH, WAIT, kind_of
from dpbench.trace.timeline import Span, Timeline
from dpbench.trace.waits import waits

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
