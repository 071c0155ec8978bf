"""Quantities as text: durations (``90s``, ``2m``, ``1.5h``) and sizes (``512KiB``, ``10MiB``)."""

import math
import re

_TEXT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[smh]?)", re.ASCII)
_SIZE = re.compile(r"(?P<number>\d{1,18})(?P<unit>|KiB|MiB|GiB)", re.ASCII)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_BYTES = 2**63 - 1
_BYTES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_duration(value: object) -> float:
    """Return seconds, above 0 and finite. Raise ValueError for any other value."""
    seconds = math.nan
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{value!r} is no duration above 0")
    return seconds


def parse_bytes(text: str) -> int:
    """Return the bytes: at least 1, and at most what fits into 64 bits.

    Raise ValueError for any other text.
    """
    match = _SIZE.fullmatch(text.strip())
    size_bytes = int(match["number"]) * _BYTES[match["unit"]] if match else 0
    if not 1 <= size_bytes <= _MOST_BYTES:
        raise ValueError(f"{text!r} is no size of 1 byte or more")
    return size_bytes
