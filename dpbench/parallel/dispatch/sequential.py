"""Sequential dispatch: calls one after the other, all in the caller's thread.

If the run stalls, the watchdog (`watchdog.py`) starts the pending calls on threads.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from dpbench.parallel.dispatch.context import ThreadState
from dpbench.parallel.dispatch.thread_hazards import ThreadHazards
from dpbench.parallel.dispatch.thread_pool import ThreadPools
from dpbench.parallel.dispatch.watchdog import WatchedRun, WatchedThread

Call = Callable[[], Any]
_END: Any = object()


class SequentialRun(WatchedRun):
    """The calls of one forward, in sequence.

    `rescue` is the future of the calls that the watchdog has started, else None.
    """

    __slots__ = ("_context", "_count", "_lock", "_pending", "_pools", "_state", "_thread", "rescue")

    def __init__(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, pools: ThreadPools
    ) -> None:
        super().__init__(devices)
        self._count = len(calls)
        self._pending = deque([*calls, _END, _END])  # one end for each of two threads, which never take the same item
        self._pools = pools
        self._state = state
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self.rescue: Future[list[Any]] | None = None
        self._thread = WatchedThread()

    @property
    def was_rescued(self) -> bool:
        return self.rescue is not None

    @property
    def progress(self) -> int | None:
        """The number of calls that have not begun; None if all have."""
        pending = len(self._pending) - 2
        return pending if pending > 0 else None

    @property
    def thread(self) -> WatchedThread:
        return self._thread

    def run(self) -> list[Any]:
        """The results in order, when all calls have ended.

        Call it in the thread that made the run.
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

    def rescue_others(self) -> None:
        """Start all calls that have not begun, each on a thread."""
        with self._lock:
            self.hazards = ThreadHazards(self._devices)
            calls = [
                partial(self._state.run_elsewhere, partial(self._context.copy().run, call))
                for call in iter(self._pending.popleft, _END)
            ]
            if calls:
                self.rescue = ThreadPoolExecutor(1, "dp-lane").submit(self._pools.run, calls[0], calls[1:])
