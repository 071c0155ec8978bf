"""Calls one after the other in the caller's thread, that do not lock up where one waits for another.

Replicas may wait for each other, as those of a synchronised batch norm do that meet at a barrier. In sequence the
first would wait for ever. So somebody looks on: if between two looks nothing has moved, the calls that have not begun
are started on threads. If that was premature, nothing is lost but their order.
"""

import contextvars
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import torch

from dpbench.parallel.context import ThreadState
from dpbench.parallel.thread_hazards import ThreadHazards
from dpbench.parallel.thread_pool import ThreadPools

Call = Callable[[], Any]

CHECK_EVERY_S = 5.0
"""A call that waits is helped after one to two of these."""
_END: Any = object()
_numbers = count()


class SequentialRun:
    """The calls of one forward. `helper` is what was started to help, if anything was; `shared` is as of then."""

    __slots__ = ("_context", "_count", "_devices", "_left", "_lock", "_state", "helper", "number", "shared")

    def __init__(self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState) -> None:
        self.number = next(_numbers)
        self._count = len(calls)
        self._left = deque([*calls, _END, _END])  # an end for either thread; what is taken is taken by one alone
        self._devices = devices
        self._state = state
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self.helper: Future[list[Any]] | None = None
        self.shared: ThreadHazards | None = None

    @property
    def left(self) -> int:
        """How many have not begun; less than one where all have."""
        return len(self._left) - 2

    def run(self) -> list[Any]:
        """The results in order, once all have ended; to be called in the thread that the state is of."""
        calls = iter(self._left.popleft, _END)
        results: list[Any] = []
        others: list[Any] = []
        try:
            for call in calls:
                results.append(self._state.run_here(call))
        finally:
            if len(results) < self._count:
                list(calls)  # after an interrupt no more begin
                with self._lock:
                    helper = self.helper
                others = [] if helper is None else helper.result()
        return results + others

    def help(self, crews: ThreadPools) -> None:
        """Starts all that have not begun, each on a thread."""
        with self._lock:
            self.shared = ThreadHazards(self._devices)
            calls = [
                partial(self._state.run_elsewhere, partial(self._context.copy().run, call))
                for call in iter(self._left.popleft, _END)
            ]
            if calls:
                self.helper = ThreadPoolExecutor(1, "dp-lane").submit(crews.run, calls[0], calls[1:])


class StallWatchdog:
    """Looks on the turns of one wrapper, from a thread that ends with it."""

    def __init__(self, crews: ThreadPools) -> None:
        self._pools = crews
        self._running: set[SequentialRun] = set()
        self._process: int | None = None

    def run(self, turns: SequentialRun) -> list[Any]:
        """As `SequentialRun.run`, with help."""
        if self._process != os.getpid():  # not begun, or forked: the thread has stayed behind
            self._begin()
        self._running.add(turns)
        try:
            return turns.run()
        finally:
            self._running.discard(turns)

    def _begin(self) -> None:
        self._process = os.getpid()
        ending: SimpleQueue[None] = SimpleQueue()  # whose `put` may be called from anywhere, as garbage collection is
        weakref.finalize(self, ending.put, None)
        threading.Thread(
            target=_look_on, args=(ending, self._running, self._pools), name="dp-lane-watchdog", daemon=True
        ).start()


def _look_on(ending: SimpleQueue[None], running: set[SequentialRun], crews: ThreadPools) -> None:
    seen: Mapping[int, int] = {}
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            seen = look(list(running), seen, crews)


def look(running: Iterable[SequentialRun], seen: Mapping[int, int], crews: ThreadPools) -> dict[int, int]:
    """Helps those that stand where they were `seen`; gives what there is to see now, in which no replica is held."""
    now = {}
    for turns in running:
        now[turns.number] = turns.left
        if seen.get(turns.number) == turns.left > 0:
            turns.help(crews)
    return now
