"""Sequential dispatch: calls one after the other, with a watchdog against deadlock.

All calls run in the caller's thread. Replicas may wait for each other, for example at the barrier of a synchronised
batch norm. In sequence the first would wait for ever. So a watchdog thread checks the progress. If no call has begun
between two checks, it starts the pending calls on threads. If the running call was only slow, this changes nothing
but the order of the calls.
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
"""A call that waits for another is rescued after one to two of these."""
_END: Any = object()
_numbers = count()


class SequentialRun:
    """The calls of one forward.

    `rescue` is the future of the calls that the watchdog has started, else None. `hazards` is their state at that
    moment, else None.
    """

    __slots__ = ("_context", "_count", "_devices", "_lock", "_pending", "_state", "hazards", "number", "rescue")

    def __init__(self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState) -> None:
        self.number = next(_numbers)
        self._count = len(calls)
        self._pending = deque([*calls, _END, _END])  # one end for each of two threads, which never take the same item
        self._devices = devices
        self._state = state
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self.rescue: Future[list[Any]] | None = None
        self.hazards: ThreadHazards | None = None

    @property
    def pending_count(self) -> int:
        """The number of calls that have not begun; less than 1 if all have."""
        return len(self._pending) - 2

    def run(self) -> list[Any]:
        """The results in order, when all calls have ended.

        Call it in the thread that the state was taken from.
        """
        calls = iter(self._pending.popleft, _END)
        results: list[Any] = []
        others: list[Any] = []
        try:
            for call in calls:
                results.append(self._state.run_here(call))
        finally:
            if len(results) < self._count:
                list(calls)  # after an interrupt no further call begins
                with self._lock:
                    rescue = self.rescue
                others = [] if rescue is None else rescue.result()
        return results + others

    def start_pending(self, pools: ThreadPools) -> None:
        """Start all calls that have not begun, each on a thread."""
        with self._lock:
            self.hazards = ThreadHazards(self._devices)
            calls = [
                partial(self._state.run_elsewhere, partial(self._context.copy().run, call))
                for call in iter(self._pending.popleft, _END)
            ]
            if calls:
                self.rescue = ThreadPoolExecutor(1, "dp-lane").submit(pools.run, calls[0], calls[1:])


class StallWatchdog:
    """Watches the sequential runs of one wrapper, from a thread that ends with the wrapper."""

    def __init__(self, pools: ThreadPools) -> None:
        self._pools = pools
        self._running: set[SequentialRun] = set()
        self._process: int | None = None

    def run(self, sequential_run: SequentialRun) -> list[Any]:
        """Like `SequentialRun.run`, with a rescue if it stalls."""
        if self._process != os.getpid():  # the first run, or the first after a fork, which leaves the thread behind
            self._start()
        self._running.add(sequential_run)
        try:
            return sequential_run.run()
        finally:
            self._running.discard(sequential_run)

    def _start(self) -> None:
        self._process = os.getpid()
        ending: SimpleQueue[None] = SimpleQueue()  # its `put` is safe in any thread, also during garbage collection
        weakref.finalize(self, ending.put, None)
        threading.Thread(
            target=_watch, args=(ending, self._running, self._pools), name="dp-lane-watchdog", daemon=True
        ).start()


def _watch(ending: SimpleQueue[None], running: set[SequentialRun], pools: ThreadPools) -> None:
    seen: Mapping[int, int] = {}
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            seen = check_progress(list(running), seen, pools)


def check_progress(running: Iterable[SequentialRun], seen: Mapping[int, int], pools: ThreadPools) -> dict[int, int]:
    """Rescue the runs without progress since `seen`; return the numbers of pending calls.

    Both are by the run's number, so the result holds no reference to a run or its replicas.
    """
    now = {}
    for run in running:
        now[run.number] = run.pending_count
        if seen.get(run.number) == run.pending_count > 0:
            run.start_pending(pools)
    return now
