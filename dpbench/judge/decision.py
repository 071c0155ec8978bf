"""Slower, faster, undecided? The rule of a comparison, a threshold of pytest, a report on two commits and a gate. Pure.

It holds a ratio with its interval against `same`, which is no change, and a `limit` above it:

    slower       the interval is above `same`, and the ratio is above the limit
    faster       the interval is below `same`
    undecided    the interval contains the limit, or lies above it with a ratio that does not
    pass         all else

The interval's ends may have risks of their own: a low end that is rarely above the true ratio makes few false alarms,
and a high end that is rarely below it misses few growths.
"""

from enum import StrEnum

MOST_ROUNDS = 200
"""More rounds are not worth a comparison's time, or a gate's."""


class Verdict(StrEnum):
    """FASTER passes, and its interval excludes no change. BROKEN: a gate could not measure."""

    PASS = "pass"  # noqa: S105
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"
    BROKEN = "broken"


def decide(
    ratio: float, ends: tuple[float, float], same: float, limit: float, slower_above: float | None = None
) -> Verdict:
    """All are ratios, and `same` is 1; or all are logarithms, and it is 0.

    With `slower_above`, only a larger ratio is slower.
    """
    low, high = ends
    if low > same and ratio > (limit if slower_above is None else slower_above):
        return Verdict.SLOWER
    if high < same:
        return Verdict.FASTER
    return Verdict.UNDECIDED if high >= limit else Verdict.PASS
