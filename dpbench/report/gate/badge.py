"""A gate's verdict as a badge: an SVG image that loads nothing.

0        LABEL        x          verdict         width
┌─────────────────────┬─────────────────────────┐
│    dpbench gate     │         slower          │  HEIGHT
└─────────────────────┴─────────────────────────┘
"""

from xml.etree import ElementTree as ET

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.wording import headline, revision

COLOURS = {
    Verdict.PASS: "#2e7d32",
    Verdict.SLOWER: "#c62828",
    Verdict.UNDECIDED: "#8a5a00",
    Verdict.BROKEN: "#57606a",
}
"""Backgrounds on which white text has a contrast of 4.5 or more (WCAG 2.1, 1.4.3)."""
_LABEL = "dpbench gate"
_LABEL_COLOUR = "#24292f"
_HEIGHT = 20
_CHARACTER = 6.5
_MARGIN = 7
_FONT = {"fill": "#fff", "font-family": "Verdana, DejaVu Sans, sans-serif", "font-size": "11"}


def gate_badge(judgement: Judgement) -> str:
    """Return the image. Its title, which browsers show over it, has head's commit and the verdict's reason."""
    verdict = str(judgement.verdict)
    left, right = _width(_LABEL), _width(verdict)
    size = {"width": f"{left + right:g}", "height": str(_HEIGHT)}
    spoken = {"role": "img", "aria-label": f"{_LABEL}: {verdict}"}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **spoken})
    ET.SubElement(root, "title").text = f"{headline(judgement)} ({revision(judgement.head)})"
    _part(root, 0, left, _LABEL, _LABEL_COLOUR)
    _part(root, left, right, verdict, COLOURS[judgement.verdict])
    return f"{ET.tostring(root, encoding='unicode')}\n"


def _part(root: ET.Element, left: float, width: float, text: str, colour: str) -> None:
    """Add a rectangle, and a text in its middle that is fitted to it whatever font the viewer has."""
    place = {"x": f"{left:g}", "width": f"{width:g}", "height": str(_HEIGHT), "fill": colour}
    ET.SubElement(root, "rect", place)
    fitted = {"x": f"{left + width / 2:g}", "y": "14", "text-anchor": "middle"}
    length = {"textLength": f"{width - 2 * _MARGIN:g}", "lengthAdjust": "spacingAndGlyphs"}
    ET.SubElement(root, "text", {**fitted, **length, **_FONT}).text = text


def _width(text: str) -> float:
    return len(text) * _CHARACTER + 2 * _MARGIN
