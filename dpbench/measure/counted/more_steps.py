"""What many steps do that one does not show: work in few steps, and work that grows with the number of steps."""

import gc
from collections.abc import Callable
from typing import Any

from dpbench.measure.python_calls import PythonCalls, PythonLines
from dpbench.records.counts import MoreSteps, Phase

_LINES_OF = 6
"""Steps whose lines are counted, at both ends. Counting lines takes ten times as long as counting calls."""


def count_more_steps(step: Callable[[], object], steps: int) -> MoreSteps:
    """Take `steps` steps between two short runs of steps, and return what they do beyond.

    Garbage collection must be switched off, so that the only collections are those that the code asks for.
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
