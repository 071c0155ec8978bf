"""How many items of a batch each lane gets. Pure functions, without torch.

The exact part of a lane is ``batch * share / sum(shares)``. It is rounded down, and the items that are left go to the
largest remainders::

    shares      1    2    1
    exact       2.5  5    2.5     of 10 items
    chunks      3    5    2
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any

Shares = tuple[float, ...]
AUTO = "auto"
_ALLOWED = (
    "None, 'auto', or a tuple with a finite number for each lane is allowed; the first number must be above 0, the "
    "others from 0 up, with zeros at the end only"
)


def checked_shares(shares: Any) -> Any:
    """`Policy.shares` as it is kept: None, "auto" or a tuple of floats. Raises ValueError for anything else."""
    if shares is None or (isinstance(shares, str) and shares == AUTO):
        return shares
    error = ValueError(f"Policy.shares is {shares!r}; {_ALLOWED}")
    if not isinstance(shares, tuple | list) or not all(_is_number(share) for share in shares):
        raise error
    try:
        numbers = tuple(float(share) for share in shares)
    except OverflowError:
        raise error from None
    used = sum(number > 0 for number in numbers)
    if not used or not all(math.isfinite(number) for number in numbers):
        raise error
    if min(numbers[:used]) <= 0 or any(numbers[used:]):
        raise error
    return numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def shares_of_lanes(shares: Any, lanes: int) -> Shares | None:
    """The shares of the lanes that get items, for a checked `Policy.shares`; None if all lanes get equal chunks.

    So is "auto" until it has measured. Raises ValueError unless there is one share for each lane.
    """
    if shares is None or shares == AUTO:
        return None
    if len(shares) != lanes:
        raise ValueError(f"Policy.shares is {shares!r}, with {len(shares)} shares for {lanes} lanes; {_ALLOWED}")
    return None if min(shares) == max(shares) else tuple(share for share in shares if share > 0)


@lru_cache(maxsize=256)
def chunk_sizes(batch: int, lanes: int, shares: Shares | None = None) -> tuple[int, ...]:
    """The number of items of each chunk, for the first lanes; they sum to `batch`.

    Equal shares give stock's chunks of ceil(batch / lanes). There are fewer chunks than lanes if the batch is short,
    or if shares at the end are 0. With other shares each of the first `batch` lanes with a share gets at least one
    item, however small its share is. A batch of 0 items gives each of these lanes a chunk of 0. Raises ValueError
    unless there is one share for each lane.
    """
    used = shares_of_lanes(shares, lanes) or (1.0,) * lanes
    if not batch:
        return (0,) * len(used)
    if min(used) == max(used):
        chunk = -(-batch // len(used))
        return tuple(min(chunk, batch - start) for start in range(0, batch, chunk))
    return _apportioned(batch, used[:batch])


def _apportioned(batch: int, shares: Sequence[float]) -> tuple[int, ...]:
    """The sizes by largest remainder, each at least 1. Fractions are exact, so the sizes sum to `batch`."""
    left, weights = batch, dict(enumerate(Fraction(share) for share in shares))
    sizes = [1] * len(shares)
    # A lane below one item gets one. That leaves fewer for the others, so one of them may then be below one too.
    while small := [lane for lane, weight in weights.items() if left * weight < sum(weights.values())]:
        left -= len(small)
        weights = {lane: weight for lane, weight in weights.items() if lane not in small}
    total = sum(weights.values())
    exact = {lane: left * weight / total for lane, weight in weights.items()}
    for lane, part in exact.items():
        sizes[lane] = math.floor(part)
    remainders = sorted(exact, key=lambda lane: (sizes[lane] - exact[lane], lane))
    for lane in remainders[: batch - sum(sizes)]:
        sizes[lane] += 1
    return tuple(sizes)
