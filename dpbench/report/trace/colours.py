"""The colours of a picture: those of the page, as the reader's system prefers, light or dark."""

import re
from collections.abc import Mapping
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
