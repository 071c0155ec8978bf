"""What a step does on the host: operators on host tensors with the bytes that they write, and work with threads.

A copy of the batch makes no Python call, so operators count. A thread counts until time ends a wait: what it does then,
such as a watchdog's checks, belongs to no step::

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

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpbench.measure.python_calls import NOT_COUNTED, Note
from dpbench.records.count_record import Phase


class HostWork(TorchDispatchMode):
    """Counts by phase, in this thread; a view does not count."""

    def __init__(self, note: Note | None = None) -> None:
        super().__init__()
        self._note = note
        self.operators: dict[Phase, int] = {}
        self.written_bytes: dict[Phase, int] = {}
        self._phase: Phase | None = None

    def enter(self, phase: Phase) -> None:
        self._phase = phase
        self.operators.setdefault(phase, 0)
        self.written_bytes.setdefault(phase, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        if self._phase is not None and not func.is_view and all(tensor.device.type == "cpu" for tensor in tensors):
            self.operators[self._phase] += 1
            if self._note is not None:
                self._note(self._phase, sys._getframe(1))
            self.written_bytes[self._phase] += sum(map(_written_bytes, tree_leaves(result)))
        return result


def _written_bytes(leaf: Any) -> int:
    """A sparse tensor has no single size."""
    return leaf.nbytes if isinstance(leaf, Tensor) and leaf.layout is torch.strided else 0


_COUNTERS = ("threads_started", "threading_calls", "thread_python_calls", "waits")
_STARTS = {getattr(_thread, name, None) for name in ("start_new_thread", "start_joinable_thread")} - {None}
_WAITS = {(SimpleQueue, "get"), (_thread.LockType, "acquire"), (_thread.RLock, "acquire")}


class ThreadWork:
    """Counts in this thread and those that start after this object, from the first `enter` to `stop`."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Phase, str]] = Counter()
        self._phase: Phase | None = None
        self._own, self._lock, self._by_time = threading.get_ident(), threading.Lock(), set[int]()
        threading.setprofile(self._on_event)

    def enter(self, phase: Phase) -> None:
        self._phase = phase
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        sys.setprofile(None)
        self._phase = None

    def of(self, phase: Phase) -> dict[str, Any]:
        return {name: self._counts[phase, name] for name in _COUNTERS}

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        ident, file, back = threading.get_ident(), frame.f_code.co_filename, frame.f_back
        is_within = file.startswith(NOT_COUNTED)
        if event == "call" and is_within:
            if file == threading.__file__ and back and not back.f_code.co_filename.startswith(NOT_COUNTED):
                self._add("threading_calls", ident)
        elif event == "call" and ident != self._own:
            self._add("thread_python_calls", ident)
        elif event == "c_call" and function in _STARTS:
            self._add("threads_started", ident)
        elif event in ("c_return", "c_exception"):
            is_sleep, is_wait = function is time.sleep, (type(function.__self__), function.__name__) in _WAITS
            if is_sleep or (is_wait and (event == "c_exception" or is_within)):
                self._by_time.add(ident)
            elif is_wait:
                self._by_time.discard(ident)
            if (is_sleep or is_wait) and not is_within:
                self._add("waits", ident)

    def _add(self, name: str, ident: int) -> None:
        if self._phase is not None and (ident == self._own or ident not in self._by_time):
            with self._lock:
                self._counts[self._phase, name] += 1
