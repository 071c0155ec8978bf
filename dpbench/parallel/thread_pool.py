"""Long-lived threads: a crew has one per lane beyond the first, so that a lane always has the same thread."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

Call = Callable[[], Any]


class ThreadPool:
    """Threads of one forward at a time, an executor of one thread each.

    An executor's thread ends when the executor is gone, or the interpreter ends. Nobody waits for it: garbage may be
    collected anywhere, even in a thread that is just starting and holds the lock without which none can be joined.
    """

    def __init__(self) -> None:
        self._threads: list[ThreadPoolExecutor] = []

    def run(self, first: Call, others: Sequence[Call]) -> list[Any]:
        """Runs `first` here and the others on the threads; returns or raises once all have ended."""
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
    """The crews of one wrapper: as many as its forwards ran at the same time, inside each other or concurrently."""

    def __init__(self) -> None:
        self._idle: list[ThreadPool] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def run(self, first: Call, others: Sequence[Call]) -> list[Any]:
        """As `ThreadPool.run`, on a crew that nobody else uses meanwhile."""
        crew = self._take()
        try:
            return crew.run(first, others)
        finally:
            self._idle.append(crew)

    def _take(self) -> ThreadPool:
        with self._lock:
            if self._process != os.getpid():  # forked: the threads have stayed behind
                self._process = os.getpid()
                self._idle.clear()
            return self._idle.pop() if self._idle else ThreadPool()
