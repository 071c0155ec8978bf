"""Colours of all charts. Their fonts and lines are in assets/config.json.

A colour is a CSS variable of assets/page.css, so a chart follows the reader's light or dark setting without being drawn
again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dpbench.cases.variants import VariantId, VariantName

INK, MUTED, LINE, GOOD, BAD, PAPER = (f"var(--{name})" for name in ("ink", "muted", "line", "good", "bad", "card"))
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
    """Return a colour channel with these values and their colours."""
    scale = {"domain": [name for name, _ in colours], "range": [colour for _, colour in colours]}
    channel: dict[str, Any] = {"field": field, "type": "nominal", "scale": scale, "title": None}
    return channel if legend else {**channel, "legend": None}


def shaped(field: str, colours: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return a shape channel that tells apart values of one colour. Its legend is the colours' one."""
    used: dict[str, int] = {}
    shapes = []
    for _, colour in colours:
        used[colour] = used.get(colour, -1) + 1
        shapes.append(_SHAPES[used[colour] % len(_SHAPES)])
    scale = {"domain": [name for name, _ in colours], "range": shapes}
    return {"field": field, "type": "nominal", "scale": scale, "title": None}


def variant_colours(variants: Sequence[VariantId]) -> list[tuple[str, str]]:
    """Return a colour for each variant. A scheme has its own; others get the next free one."""
    taken = {_PLACES[each.name] for each in variants if _is_scheme(each)}
    free = [place for place in range(_SERIES) if place not in taken] or list(range(_SERIES))
    found, used = [], 0
    for variant in variants:
        if _is_scheme(variant):
            place = _PLACES[variant.name]
        else:
            place, used = free[used % len(free)], used + 1
        found.append((str(variant), series(place)))
    return found


def series(place: int) -> str:
    """Return the colour of a series by its place."""
    return f"var(--c{place % _SERIES})"


def _is_scheme(variant: VariantId) -> bool:
    return variant.name in _PLACES and str(variant) == str(variant.name)
