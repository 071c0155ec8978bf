"""An interval drawn with characters on a line around 1, for a table's cell.

    ┄┄┄┄┄┄┄┄┄┄│┄━━●━━┄┄┄┄    surely above 1
    ┄┄┄┄┄┄┄━━━┿●━━┄┄┄┄┄┄┄    not decided
    ◄━━━━━━━━━│┄┄┄┄┄┄┄┄┄┄    goes on to the left

The characters mean nothing in markdown, so they need no escape.
"""

from collections.abc import Iterable
from math import exp, log

from dpbench.gate.judgement import TimeRatio

_HALF = 10
_LEAST_SPAN, _MOST_SPAN = log(1.02), log(2.0)
_LINE, _ONE, _INTERVAL, _ONE_INSIDE, _VALUE, _LEFT, _RIGHT = "┄│━┿●◄►"


def span_of(ratios: Iterable[TimeRatio]) -> float:
    """Return the logarithm at a line's end that shows all of the ratios, between those of 1.02 and of 2."""
    ends = [abs(log(end)) for each in ratios for end in (each.low, each.high) if end > 0]
    return min(max([_LEAST_SPAN, *ends]), _MOST_SPAN)


def ends_of(span: float) -> str:
    """Return the ratios at both ends of a line, such as ``0.95 … 1 … 1.05``."""
    return f"{exp(-span):.2f} … 1 … {exp(span):.2f}"


def interval_line(ratio: TimeRatio, span: float) -> str:
    """Return the line of a ratio: 21 characters, with 1 in the middle. An end that lies outside is an arrow."""
    low, value, high = (_place(end, span) for end in (ratio.low, ratio.value, ratio.high))
    cells = [_LINE] * (2 * _HALF + 1)
    cells[_HALF] = _ONE
    for place in range(max(low, 0), min(high, 2 * _HALF) + 1):
        cells[place] = _ONE_INSIDE if place == _HALF else _INTERVAL
    if _is_beside_one(ratio):
        cells[_HALF] = _ONE
    cells[min(max(value, 0), 2 * _HALF)] = _VALUE
    if low < 0:
        cells[0] = _LEFT
    if high > 2 * _HALF:
        cells[-1] = _RIGHT
    return "".join(cells)


def _is_beside_one(ratio: TimeRatio) -> bool:
    """Whether the interval does not contain 1, though its nearest end may round to the middle."""
    return ratio.low > 1 or ratio.high < 1


def _place(ratio: float, span: float) -> int:
    """Return the cell of a ratio: below 0 or above 20 if it lies outside."""
    where = _HALF * (1 + log(ratio) / span) if ratio > 0 else -1.0
    return round(min(max(where, -1), 2 * _HALF + 1))
