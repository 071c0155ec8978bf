"""Small bars in a terminal's tables: a length as block characters, or as ``#`` where the terminal has only ASCII."""

from dataclasses import dataclass
from math import floor

_EIGHTHS = " ▏▎▍▌▋▊▉"
LEAST_WIDTH, MOST_WIDTH = 8, 24
"""Columns of a bar. A terminal without room for the least gets no bars."""


@dataclass(frozen=True)
class Bar:
    """A bar's length as a share of its column, 0 to 1, and rich's style. A share of None draws nothing."""

    share: float | None
    style: str = ""


def bar_text(share: float | None, width: int, *, ascii_only: bool) -> str:
    """Return a bar of at most `width` characters. A share above 0 has at least the thinnest mark."""
    if share is None or share <= 0:
        return ""
    if ascii_only:
        return "#" * max(1, round(min(share, 1) * width))
    eighths = max(1, round(min(share, 1) * width * 8))
    return "█" * floor(eighths / 8) + _EIGHTHS[eighths % 8].strip()
