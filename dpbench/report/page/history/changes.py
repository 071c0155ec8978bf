"""Lasting changes of step times, and their words. Pure.

The rule is that of the gate (`gate/drift.py`): a step of more than 10 % that no later step undoes, with three points or
more at each level. Applied to times it finds what became slower; applied to the steps a second it finds what became
faster.
"""

from collections.abc import Sequence
from dataclasses import replace

from dpbench.gate.drift import LEAST_POINTS, OTHER_THRESHOLD, drifts
from dpbench.gate.history import Series
from dpbench.gate.judgement import Drift

SLOWER, FASTER = "slower", "faster"
_MOST_ANSWERS = 3


def lasting_changes(series: Sequence[Series]) -> list[Drift]:
    """Return the lasting steps up and down, the largest first. Raise NoStepDetectionError without asv."""
    rates = [
        replace(each, points=tuple(replace(point, step_s=1 / point.step_s) for point in each.points)) for each in series
    ]
    falls = [
        each.model_copy(update={"before_s": 1 / each.before_s, "after_s": 1 / each.after_s})
        for each in drifts(rates, {})
    ]
    return sorted([*drifts(series, {}), *falls], key=lambda each: -abs(each.after_s / each.before_s - 1))


def word_of(times: float) -> str:
    """Return whether a step is slower or faster that takes so many times as long."""
    return SLOWER if times > 1 else FASTER


def growth_of(times: float) -> str:
    """Return the growth of a step that takes so many times as long, such as ``+12.0 %``."""
    return f"{100 * (times - 1):+.1f} %"


def answers_of(changes: Sequence[str], lines: str, what: str, longest: int, *, can_detect: bool) -> list[str]:
    """Return the first `changes`, or why there are none.

    `lines` says what was looked at. `longest` is the number of points of the longest line, and `what` their kind.
    """
    if not can_detect:
        return ["Lasting changes are not marked, because asv is not installed: pip install 'torch-dpbench[suites]'"]
    if longest < LEAST_POINTS:
        return [f"There are too few {what} to find lasting changes: {longest}, and {LEAST_POINTS} are needed."]
    if not changes:
        return [f"No lasting change of {100 * OTHER_THRESHOLD:.0f} % or more in {lines}."]
    more = len(changes) - _MOST_ANSWERS
    said = list(changes[:_MOST_ANSWERS])
    return [*said, f"{more:,} more lasting changes are in the table."] if more > 0 else said
