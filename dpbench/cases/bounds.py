"""Numbers and dates of files, as types with bounds: none is beyond a float, a date or 64 bits.

The bounds fit any machine, and a product of a few values stays finite.
"""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from dpbench.text.outside import quoted

MOST = 1e15
_YEARS = range(1970, 3000)


def _moment(text: str) -> str:
    try:
        is_known = datetime.fromisoformat(text).year in _YEARS
    except ValueError:
        is_known = False
    if not is_known:
        raise ValueError(
            f"{quoted(text)} is no date; allowed: such as 2026-01-31T12:00:00+00:00, from {_YEARS[0]} to {_YEARS[-1]}"
        )
    return text


Count = Annotated[int, Field(ge=0, lt=2**63)]
"""Bytes, cores, ranks, steps or nanoseconds."""
Items = Annotated[int, Field(ge=1, lt=2**31)]
"""Items in a batch, lanes, threads or machines."""
Positive = Annotated[float, Field(gt=1 / MOST, lt=MOST)]
"""A measured time in seconds, or a ratio of times."""
Real = Annotated[float, Field(ge=-MOST, le=MOST)]
"""Any other quantity with a unit, such as a difference of times."""
Moment = Annotated[str, AfterValidator(_moment)]
"""A moment in ISO 8601."""


def day_of(seconds: float) -> str:
    """The UTC day of seconds since 1970, such as ``2026-01-31``; at most that of the last year."""
    last_s = datetime(_YEARS[-1], 12, 31, tzinfo=UTC).timestamp()
    return datetime.fromtimestamp(max(0.0, min(seconds, last_s)), UTC).date().isoformat()
