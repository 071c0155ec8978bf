"""How much sampling time each child gets, and how long the rest will take. Pure."""

from collections.abc import Sequence
from statistics import median

LEAST_S = 0.2
"""A child always samples for so long, even when the time is up: starting it cost seconds already."""


def child_budget(remaining_s: float, jobs: int, startup_s: float, most_s: float) -> float:
    """Sampling seconds for each of `jobs` children so that all end within `remaining_s`, and never above `most_s`.

    `startup_s` is what one child takes beside sampling: imports, the model, warm-up, the gradient check.
    """
    return min(max(remaining_s / jobs - startup_s, LEAST_S), most_s)


def forecast(left: Sequence[str], seen: Sequence[tuple[str, float]], guess: float) -> float:
    """The sum expected for the keys `left`, where `seen` are (key, value) pairs of those that are done.

    A key that was seen is expected to repeat its median, a new one the median of all; without any, `guess`.
    """
    overall = median(value for _, value in seen) if seen else guess
    medians = {key: median(value for k, value in seen if k == key) for key in {key for key, _ in seen}}
    return sum(medians.get(key, overall) for key in left)
