"""The number of Python functions that a step calls, and of Python lines that it executes."""

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

from dpbench.records.count_record import Phase

# Calls of the harness are not the variant's. `threading` keeps its threads in a set of weak references; how often it
# calls that set depends on which thread comes first.
_HARNESS = f"{Path(__file__).parent}{os.sep}"
NOT_COUNTED = (_HARNESS, threading.__file__, weakref.WeakSet.add.__code__.co_filename)


Note = Callable[[str, FrameType], None]
"""Takes the phase and the frame of a counted event."""


class _ByPhase:
    def __init__(self, note: Note | None = None) -> None:
        self._counters: dict[Phase, Iterator[int]] = {}
        self._current: Iterator[int] = itertools.count()
        self._note, self._phase = note, ""

    def enter(self, phase: Phase) -> None:
        self._current, self._phase = self._counters.setdefault(phase, itertools.count()), phase

    def _count(self, frame: FrameType) -> None:
        next(self._current)  # one C call, so that no thread's count is lost
        if self._note is not None:
            self._note(self._phase, frame)

    def by_phase(self) -> dict[Phase, int]:
        """Call it once, after the block: each call adds one to each counter."""
        return {phase: next(counter) for phase, counter in self._counters.items()}


class PythonCalls(_ByPhase):
    """Calls by phase, of this thread and those that it starts within the block. Resuming a generator is a call."""

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and not frame.f_code.co_filename.startswith(NOT_COUNTED):
            self._count(frame)

    def __enter__(self) -> Self:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


class PythonLines(_ByPhase):
    """Executed lines in the frames that `PythonCalls` counts; each turn of a loop in one line counts."""

    def _on_event(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename.startswith(NOT_COUNTED):
            return None
        if event == "line":
            self._count(frame)
        return self._on_event

    def __enter__(self) -> Self:
        threading.settrace(self._on_event)
        sys.settrace(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)
