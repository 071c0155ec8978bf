"""What a step does with threads: those that it starts, its waits, and the Python calls of threads that exist already.

A thread counts from its start, or from a wait that another thread has ended. What it does after a wait that time has
ended belongs to no step, such as the checks of a watchdog::

    lane        get() ─> a call, with its Python calls ─> get()             counted
    watchdog    get(timeout=0.25) ─> Empty ─> a check ─> get(timeout=0.25)  not counted

Waits count when they end, because a thread begins the next one at any time after its work. ``with lock`` does not show.
"""

import _thread
import sys
import threading
import time
from collections import Counter
from queue import SimpleQueue
from types import FrameType
from typing import Any

from dpbench.measure.python_calls import NOT_COUNTED
from dpbench.records.counts import Phase

_STARTS = {getattr(_thread, name, None) for name in ("start_new_thread", "start_joinable_thread")} - {None}
_WAITS = {(SimpleQueue, "get"): "queue", (_thread.LockType, "acquire"): "lock", (_thread.RLock, "acquire"): "lock"}


class ThreadWork:
    """Counts from the first `enter` to `stop`, in this thread and those that start after this object."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Phase, str]] = Counter()
        self._phase: Phase | None = None
        self._own, self._lock = threading.get_ident(), threading.Lock()
        self._by_time: set[int] = set()
        threading.setprofile(self._on_event)

    def enter(self, phase: Phase) -> None:
        self._phase = phase
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        sys.setprofile(None)
        self._phase = None

    def of(self, phase: Phase) -> dict[str, Any]:
        """Return the counters of a phase."""
        waits = {kind: count for kind in ("queue", "lock", "sleep") if (count := self._counts[phase, kind])}
        calls = {name: self._counts[phase, name] for name in ("threads_started", "threading_calls", "thread_calls")}
        return {**calls, "waits": waits}

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        ident, is_within = threading.get_ident(), frame.f_code.co_filename.startswith(NOT_COUNTED)
        if event == "call":
            back = frame.f_back
            if is_within and back is not None and not back.f_code.co_filename.startswith(NOT_COUNTED):
                self._add("threading_calls", ident)
            elif not is_within and ident != self._own:
                self._add("thread_calls", ident)
        elif event == "c_call":
            if function in _STARTS:
                self._add("threads_started", ident)
        elif event != "return":
            self._note_end(event, ident, is_within, function)

    def _note_end(self, event: str, ident: int, is_within: bool, function: Any) -> None:
        """Note that a function in C has ended: a wait, or any other."""
        kind = _WAITS.get((type(getattr(function, "__self__", None)), getattr(function, "__name__", "")))
        if function is time.sleep or (kind and (event == "c_exception" or is_within)):
            self._by_time.add(ident)
        elif kind and event == "c_return":
            self._by_time.discard(ident)
        if event == "c_return" and not is_within and (kind or function is time.sleep):
            self._add(kind or "sleep", ident)

    def _add(self, name: str, ident: int) -> None:
        if self._phase is not None and (ident == self._own or ident not in self._by_time):
            with self._lock:
                self._counts[self._phase, name] += 1
