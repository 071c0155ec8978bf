"""Quantities as text: durations (``90s``, ``1.5h``; shown as ``1:30``), sizes (``512KiB``), and figures with units."""

import math
import re
from collections.abc import Iterable

from dpbench.text.outside import quoted

_TEXT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[smh]?)", re.ASCII)
_SIZE = re.compile(r"(?P<number>\d{1,18})(?P<unit>|KiB|MiB|GiB)", re.ASCII)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_S = 168 * 3600
MOST = "at most 168h"
_MOST_BYTES = 2**63 - 1
_BYTES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTE_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "bytes"))
_DIGITS = 3


def parse_duration(value: object) -> float:
    """Seconds, at most 168 hours: a system call waits for at most 2**31 - 1 ms, 24 days. Raise ValueError."""
    seconds: int | float = math.nan
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value  # compared before the conversion: an integer of TOML may exceed the largest float
    if not 0 < seconds <= _MOST_S:
        raise ValueError(f"{quoted(value)} is no duration above 0 and {MOST}")
    return float(seconds)


def parse_bytes(text: str) -> int:
    """From 1 to what fits into 64 bits; raise ValueError for any other text."""
    match = _SIZE.fullmatch(text.strip())
    size_bytes = int(match["number"]) * _BYTES[match["unit"]] if match else 0
    if not 1 <= size_bytes <= _MOST_BYTES:
        raise ValueError(f"{text!r} is no size of 1 byte or more")
    return size_bytes


def plural(count: int, noun: str) -> str:
    """Such as ``1 case`` or ``1,200 cases``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def time_left(seconds: float) -> str:
    """As ``minutes:seconds``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def time_unit(times_s: Iterable[float]) -> tuple[float, str]:
    """The largest unit, in seconds and by name, in which the shortest time is at least 1; else the smallest."""
    shortest_s = min(times_s, default=1.0)
    return next((unit for unit in _UNITS if shortest_s >= unit[0]), _UNITS[-1])


def byte_unit(sizes: Iterable[float]) -> tuple[float, str]:
    """As `time_unit`, for the smallest size above 0."""
    smallest = min((size for size in sizes if size > 0), default=1.0)
    return next((unit for unit in _BYTE_UNITS if smallest >= unit[0]), _BYTE_UNITS[-1])


def number(value: float) -> str:
    """Three significant digits, or all before the point; never an exponent."""
    return f"{value:,.{decimals(value)}f}"


def decimals(value: float) -> int:
    """The digits behind the point that `number` shows."""
    return max(0, _DIGITS - 1 - math.floor(math.log10(abs(value)))) if value else 0


def duration(seconds: float) -> str:
    """Such as ``27.6 ms``."""
    unit_s, unit = time_unit([seconds])
    return f"{number(seconds / unit_s)} {unit}"
