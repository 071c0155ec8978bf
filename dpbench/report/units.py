"""Numbers as text: units and significant digits."""

from collections.abc import Iterable
from math import floor, log10

from dpbench.stats.rounds import Estimate

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTE_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "bytes"))
_DIGITS = 3


def time_unit(times_s: Iterable[float]) -> tuple[float, str]:
    """Return the largest unit in which the shortest time is at least 1, else the smallest.

    A unit is its length in seconds and its name.
    """
    shortest_s = min(times_s, default=1.0)
    return next((unit for unit in _UNITS if shortest_s >= unit[0]), _UNITS[-1])


def byte_unit(sizes: Iterable[float]) -> tuple[float, str]:
    """Return the largest unit in which the smallest size above 0 is at least 1: its bytes and its name."""
    smallest = min((size for size in sizes if size > 0), default=1.0)
    return next((unit for unit in _BYTE_UNITS if smallest >= unit[0]), _BYTE_UNITS[-1])


def number(value: float) -> str:
    """Return the number with three significant digits, or all digits before the point.

    There is never an exponent.
    """
    return f"{value:,.{_decimals(value)}f}"


def estimate(found: Estimate, unit: float = 1.0) -> str:
    """Return a text such as ``1.23 [1.20, 1.31]``, or only the value if there is no interval.

    The ends have as many decimals as the value.
    """
    decimals = _decimals(found.value / unit)
    value, *ends = (f"{x / unit:,.{decimals}f}" for x in (found.value, found.low, found.high) if x is not None)
    return f"{value} [{', '.join(ends)}]" if ends else value


def _decimals(value: float) -> int:
    return max(0, _DIGITS - 1 - floor(log10(abs(value)))) if value else 0
