"""Long-lived threads: one per lane beyond the first, the same for a lane in every forward."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

Call = Callable[[], Any]


class ThreadPool:
    """The threads of one forward at a time, each an executor with one thread.

    An executor's thread ends when the executor is garbage, or when the interpreter ends. No code joins the threads,
    because the wrapper may be collected in any thread. That thread may hold the lock without which none can be joined.
    """

    def __init__(self) -> None:
        self._threads: list[ThreadPoolExecutor] = []

    def run(self, first: Call, others: Sequence[Call]) -> list[Any]:
        """Run `first` here and the others on the threads; return or raise when all have ended."""
        while len(self._threads) < len(others):
            name = f"dp-lane-{1 + len(self._threads)}"
            self._threads.append(ThreadPoolExecutor(max_workers=1, thread_name_prefix=name))
        futures = [thread.submit(call) for thread, call in zip(self._threads, others, strict=False)]
        try:
            result = first()
        finally:
            wait(futures)
        return [result, *[future.result() for future in futures]]


class ThreadPools:
    """The pools of one wrapper: one per forward that runs at the same time."""

    def __init__(self) -> None:
        self._idle: list[ThreadPool] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def run(self, first: Call, others: Sequence[Call]) -> list[Any]:
        """Like `ThreadPool.run`, on a pool that no other call uses meanwhile."""
        pool = self._take()
        try:
            return pool.run(first, others)
        finally:
            self._idle.append(pool)

    def _take(self) -> ThreadPool:
        with self._lock:
            if self._process != os.getpid():  # after a fork: the threads exist in the parent only
                self._process = os.getpid()
                self._idle.clear()
            return self._idle.pop() if self._idle else ThreadPool()
