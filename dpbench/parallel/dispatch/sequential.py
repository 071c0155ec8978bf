"""Sequential dispatch: calls one after the other, with a watchdog against deadlock.

All calls run in the caller's thread. Replicas may wait for each other, for example at the barrier of a synchronised
batch norm. In sequence the first would wait for ever. So a watchdog thread checks the progress. It starts the pending
calls on threads in two cases:

waiting   the running call waits for a lock while the process is idle (`standstill.py`), in a few checks running
slow      no call has begun for seconds, as when replicas poll, or on a system that does not show waits; in a
          wrapper's first run for minutes

Neither holds while the call is in a compiler or a debugger. If the call did not wait for the others, this changes
nothing but the order of the calls: a mistake costs time, and the order in which random numbers are drawn.
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
from typing import Any, NamedTuple

import torch

from dpbench.parallel.dispatch.context import ThreadState
from dpbench.parallel.dispatch.standstill import Moment, WatchedThread
from dpbench.parallel.dispatch.thread_hazards import ThreadHazards
from dpbench.parallel.dispatch.thread_pool import ThreadPools

Call = Callable[[], Any]

CHECK_EVERY_S = 0.25
WAITING_CHECKS = 2
"""A call that waits for a lock, in an idle process, is rescued after this many checks without a change."""
SLOW_CHECKS = 40
"""Any call is rescued after this many checks, unless it compiles."""
FIRST_FACTOR = 12
"""Before a run of the wrapper has ended, a slow call gets this many times more checks.

A first forward may compile, autotune or load kernels, for a minute and more, and threads would disturb that.
"""
_END: Any = object()
_numbers = count()


class Sighting(NamedTuple):
    """What the watchdog saw of a run: for how many checks no call has begun, and for how many the thread was idle.

    Without a reference to the run or its replicas.
    """

    pending_count: int
    moment: Moment | None
    checks: int = 0
    idle_checks: int = 0


class SequentialRun:
    """The calls of one forward.

    `rescue` is the future of the calls that the watchdog has started, else None. `hazards` is their state at that
    moment, else None. `was_waiting` says that the running call then waited for a lock in an idle process.
    `slow_checks` is the number of checks after which a call is slow.
    """

    __slots__ = (
        "_context",
        "_count",
        "_devices",
        "_lock",
        "_pending",
        "_state",
        "_thread",
        "hazards",
        "number",
        "rescue",
        "slow_checks",
        "was_waiting",
    )

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
        self.was_waiting = False
        self.slow_checks = SLOW_CHECKS
        self._thread = WatchedThread()

    @property
    def pending_count(self) -> int:
        """The number of calls that have not begun; less than 1 if all have."""
        return len(self._pending) - 2

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

    def look(self, last: Sighting | None) -> Sighting:
        """The progress since the last sighting."""
        count, moment = self.pending_count, self._thread.moment()
        if last is None or last.pending_count != count:
            return Sighting(count, moment)
        is_idle = moment is not None and last.moment is not None and moment.is_idle_since(last.moment)
        return Sighting(count, moment, last.checks + 1, last.idle_checks + 1 if is_idle else 0)

    def rescue_if_stalled(self, sighting: Sighting, pools: ThreadPools) -> None:
        """Start the pending calls if the running one waits for a lock, or is slow."""
        if sighting.pending_count < 1:
            return
        is_waiting = sighting.idle_checks >= WAITING_CHECKS and self._thread.waits_for_a_lock()
        if (is_waiting or sighting.checks >= self.slow_checks) and not self._thread.is_on_its_own(until=__name__):
            self.was_waiting = is_waiting
            self.start_pending(pools)

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
        self._has_ended_once = False

    def run(self, sequential_run: SequentialRun) -> list[Any]:
        """Like `SequentialRun.run`, with a rescue if it stalls."""
        if self._process != os.getpid():  # the first run, or the first after a fork, which leaves the thread behind
            self._start()
        if not self._has_ended_once:
            sequential_run.slow_checks *= FIRST_FACTOR
        self._running.add(sequential_run)
        try:
            results = sequential_run.run()
            self._has_ended_once = True
            return results
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
    seen: Mapping[int, Sighting] = {}
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            seen = check_progress(list(running), seen, pools)


def check_progress(
    running: Iterable[SequentialRun], seen: Mapping[int, Sighting], pools: ThreadPools
) -> dict[int, Sighting]:
    """Rescue the runs that have stalled; return what was seen now, by the run's number."""
    now = {}
    for run in running:
        now[run.number] = run.look(seen.get(run.number))
        run.rescue_if_stalled(now[run.number], pools)
    return now
