"""Durations as text: ``90s``, ``2m``, ``1.5h``, or a number of seconds."""

import math
import re

_TEXT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[smh]?)", re.ASCII)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(value: object) -> float:
    """Seconds, above 0 and finite. Raises ValueError for anything else."""
    seconds = math.nan
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{value!r} is no duration above 0")
    return seconds
