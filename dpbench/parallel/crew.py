"""Long-lived threads: a crew has one per lane beyond the first, so that a lane always has the same thread."""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

Call = Callable[[], Any]


class Crew:
    """Threads of one forward at a time. An executor of one thread each: it also ends them when the interpreter does."""

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

    def close(self) -> None:
        for thread in self._threads:
            with suppress(RuntimeError):  # from one of the threads itself, which cannot wait for its own end
                thread.shutdown()


class CrewPool:
    """The crews of one wrapper: as many as its forwards ran at the same time, inside each other or concurrently."""

    def __init__(self) -> None:
        self._idle: list[Crew] = []
        self._all: list[Crew] = []
        self._lock = threading.Lock()
        self._process = os.getpid()
        weakref.finalize(self, _close, self._all).atexit = False  # at exit the executors end their threads

    def run(self, first: Call, others: Sequence[Call]) -> list[Any]:
        """As `Crew.run`, on a crew that nobody else uses meanwhile."""
        crew = self._take()
        try:
            return crew.run(first, others)
        finally:
            self._idle.append(crew)

    def _take(self) -> Crew:
        with self._lock:
            if self._process != os.getpid():  # forked: the threads have stayed behind
                self._process = os.getpid()
                self._idle.clear()
                self._all.clear()
            if self._idle:
                return self._idle.pop()
            crew = Crew()
            self._all.append(crew)
            return crew


def _close(crews: list[Crew]) -> None:
    for crew in crews:
        crew.close()
