"""What many steps do that one does not show: work in few steps, and work that grows with the number of steps."""

import gc
from collections.abc import Callable
from typing import Any

from dpbench.measure.python_calls import PythonCalls, PythonLines
from dpbench.records.count_record import MoreSteps, Phase

_LINES_OF = 6
"""Steps at both ends whose lines are counted, which takes ten times as long as counting calls."""


def count_more_steps(step: Callable[[], object], steps: int) -> MoreSteps:
    """What `steps` steps do beyond the short runs of steps around them.

    Garbage collection must be off, so that only collections that the code asks for run.
    """
    assert not gc.isenabled()
    collections = list[str]()

    def note(moment: str, _: dict[str, Any]) -> None:
        collections.append(moment)

    first_lines = _lines(step)
    gc.callbacks.append(note)
    try:
        one = _calls(step, 1)
        seldom_calls = max(0, _calls(step, steps) - steps * one)
    finally:
        gc.callbacks.remove(note)
    later_lines = max(0, _lines(step) - first_lines)
    return MoreSteps(seldom_calls=seldom_calls, collections=collections.count("start"), later_lines=later_lines)


def _calls(step: Callable[[], object], steps: int) -> int:
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        for _ in range(steps):
            step()
    return calls.by_phase()[Phase.FORWARD]


def _lines(step: Callable[[], object]) -> int:
    with PythonLines() as lines:
        lines.enter(Phase.FORWARD)
        for _ in range(_LINES_OF):
            step()
    return lines.by_phase()[Phase.FORWARD]
