"""The threads of a wrapper, one per lane beyond the first."""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

Call = Callable[[], Any]
Outcome = tuple[Any, BaseException | None]


def value_of(outcome: Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


class LaneThread:
    """No code joins the thread: the wrapper may be collected in a thread that holds the lock for joining.

    Calls and outcomes go through queues in C. An interrupt cannot leave these half changed, but it can leave a
    `threading.Condition` locked, and so all of concurrent.futures.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Call, Callable[[Outcome], object]] | None] = SimpleQueue()
        weakref.finalize(self, self._calls.put, None)
        threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True).start()

    def submit(self, call: Call, report: Callable[[Outcome], object]) -> None:
        self._calls.put((call, report))

    def wait(self) -> None:
        ended: SimpleQueue[Outcome] = SimpleQueue()
        self.submit(list, ended.put)
        ended.get()


def _serve(calls: SimpleQueue[tuple[Call, Callable[[Outcome], object]] | None]) -> None:
    while (item := calls.get()) is not None:
        call, report = item
        outcome: Outcome
        try:
            outcome = call(), None
        except BaseException as error:
            outcome = None, error
        del item, call  # before the report, after which the replicas should be idle
        report(outcome)
        del report, outcome


class ThreadPools:
    """A pool for each forward that runs at the same time."""

    def __init__(self) -> None:
        self._idle: list[list[LaneThread]] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def run(self, first: Call, other_calls: Sequence[Call]) -> list[Any]:
        """Run `first` here and the others on threads; return the results when all have ended.

        An interrupt is raised when all have ended.
        """
        pool = self._take()
        try:
            while len(pool) < len(other_calls):
                pool.append(LaneThread(f"dp-lane-{1 + len(pool)}"))
            outcomes: list[SimpleQueue[Outcome]] = [SimpleQueue() for _ in other_calls]
            for thread, call, outcome in zip(pool, other_calls, outcomes, strict=False):
                thread.submit(call, outcome.put)
            return [first(), *map(value_of, [outcome.get() for outcome in outcomes])]
        except BaseException:
            for thread in pool:
                thread.wait()
            raise
        finally:
            self._idle.append(pool)

    def _take(self) -> list[LaneThread]:
        with self._lock:
            if self._process != os.getpid():  # after a fork: the threads exist in the parent only
                self._idle.clear()
                self._process = os.getpid()
            return self._idle.pop() if self._idle else []
