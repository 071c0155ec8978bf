"""Lasting changes of step times, and their words. Pure.

The rule is that of the gate (`gate/drift.py`): a step of more than 10 % that no later step undoes, with three points or
more at each level. Applied to times it finds what became slower; applied to the steps a second it finds what became
faster.
"""

from collections.abc import Sequence
from dataclasses import replace

from dpbench.gate.drift import LEAST_POINTS, MOST_POINTS, OTHER_THRESHOLD, drifts
from dpbench.gate.history import Series
from dpbench.gate.judgement import Drift
from dpbench.report.page.parts import ALL, Cell, DataRow, Panel, Shown
from dpbench.report.units import number

SLOWER, FASTER = "slower", "faster"
_MOST_ANSWERS = 3
_MOST_ROWS = 200
_MS = 1e-3


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


def change_fields(before_s: float, after_s: float) -> dict[str, Cell]:
    """Return the last cells of a row of `changes_panel`."""
    before, after = number(before_s / _MS), number(after_s / _MS)
    return {"before": before, "after": after, "change": growth_of(after_s / before_s)}


def changes_panel(rows: Sequence[DataRow], columns: Sequence[Shown], points: str) -> Panel:
    """Return the table of lasting changes, largest first. `columns` name what changed, `points` what was looked at."""
    more = f" The first {_MOST_ROWS} of {len(rows):,} are shown." if len(rows) > _MOST_ROWS else ""
    text = (
        f"Steps of {100 * OTHER_THRESHOLD:.0f} % or more that no later step undoes, by the gate's rule. The newest "
        f"{MOST_POINTS} {points} count.{more}"
    )
    times = (Shown("before", "before, ms"), Shown("after", "after, ms"), Shown("change", "change"))
    return Panel("changes", "Lasting changes", text, (*columns, *times), {ALL: rows[:_MOST_ROWS]})
