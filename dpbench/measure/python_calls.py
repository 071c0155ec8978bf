"""How many Python functions a step calls."""

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

from dpbench.results.counts import Phase

# The harness is not the variant's doing. What `threading`, with a set of weak references, has to call to keep its books
# depends on which thread comes first.
_HARNESS = f"{Path(__file__).parent}{os.sep}"
_NOT_COUNTED = (_HARNESS, threading.__file__, weakref.WeakSet.add.__code__.co_filename)


class PythonCalls:
    """Within the block, counts for each phase the calls of Python functions, in this thread and in those it starts.

    Resuming a generator is a call too, as the interpreter sees it; a call of C is not. Frames of the harness, of the
    module `threading` and of weak sets are left out. A thread that was there before is not seen.
    """

    def __init__(self) -> None:
        self._counters: dict[Phase, Iterator[int]] = {}
        self._current: Iterator[int] = itertools.count()

    def enter(self, phase: Phase) -> None:
        self._current = self._counters[phase] = itertools.count()

    def by_phase(self) -> dict[Phase, int]:
        """The counts; asking ends the counting."""
        return {phase: next(counter) for phase, counter in self._counters.items()}

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and not frame.f_code.co_filename.startswith(_NOT_COUNTED):
            next(self._current)  # in one instruction, so that no thread's call is lost

    def __enter__(self) -> Self:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
