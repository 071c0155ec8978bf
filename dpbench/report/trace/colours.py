"""The colours of a picture: those of the page, as the reader's system prefers, light or dark."""

import re
from importlib.resources import files

from dpbench.report.page.theme import BAD, INK, LINE, MUTED, PAPER, series
from dpbench.results.counts import Phase
from dpbench.trace.timeline import Doing, Moved, Span

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
WAIT, PATH, MIXED = "wait", "path", "mixed"
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
    """Return the rules of the picture, with the colours of the page."""
    fills = [f".{CLASSES[name]}{{fill:{colour}}}" for name, colour in _COLOURS.items()]
    fills += [f".{_HOST}{phase}{{fill:{colour};opacity:.5}}" for phase, colour in _OF_PHASE.items()]
    rules = [
        *fills,
        f"svg{{background:{PAPER};font:12px system-ui,-apple-system,'Segoe UI',sans-serif}}",
        f".paper{{fill:{PAPER}}} text{{fill:{INK}}} line{{stroke:{LINE};stroke-width:1}}",
        f".muted,.row,.tick{{fill:{MUTED}}} .row{{text-anchor:end}} .tick{{text-anchor:middle}}",
        ".head{font-size:20px;font-weight:650} .name{font-size:15px;font-weight:650}",
        f".{WAIT}{{fill:url(#wait)}} .hatch{{fill:{MUTED};opacity:.45}} .{MIXED}{{fill:{MUTED}}} .{PATH}{{fill:{BAD}}}",
    ]
    return _roots() + "\n".join(rules)


def _roots() -> str:
    """Return the page's rules that define its colours: for light, and for a reader who prefers dark."""
    text = _PAGE.read_text(encoding="utf-8")
    light = re.search(r"^:root \{.*?^\}\n", text, re.DOTALL | re.MULTILINE)
    dark = re.search(
        r"^@media[^\n]*prefers-color-scheme: dark[^\n]*\n  :root \{.*?^\}\n", text, re.DOTALL | re.MULTILINE
    )
    assert light is not None
    assert dark is not None
    return light[0] + dark[0]
