"""The threads of a wrapper, one per lane beyond the first; and the stall watchdog.

Replicas may wait for each other, for example at the barrier of a synchronised batch norm. The watchdog lets the others
run at the same time in two cases:

waiting   the running replica waits for a lock while the process is idle. On Linux the kernel names the call in which a
          thread waits: a lock, condition, queue or barrier is a *futex*. A wait for the GIL ends every 5 ms, so the
          thread's clock goes on
slow      the run has made no progress for seconds; in a wrapper's first run, which may load kernels, for minutes

A needless rescue costs time and changes the order in which random numbers are drawn.
"""

import os
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import torch

from dpbench.parallel.thread_state import ThreadHazards

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

    def run(self, first: Call, others: Sequence[Call]) -> list[Any]:
        """Run `first` here and the others on threads; return the results when all have ended.

        An interrupt is raised when all have ended.
        """
        pool = self._take()
        try:
            while len(pool) < len(others):
                pool.append(LaneThread(f"dp-lane-{1 + len(pool)}"))
            outcomes: list[SimpleQueue[Outcome]] = [SimpleQueue() for _ in others]
            for thread, call, outcome in zip(pool, others, outcomes, strict=False):
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


CHECK_EVERY_S = 0.25
WAITING_CHECKS = 2
"""Checks without progress before a waiting replica is rescued."""
SLOW_CHECKS = 40
"""Checks without progress before any run is rescued."""
FIRST_FACTOR = 12
"""The factor on a slow run's checks before a run of the wrapper has ended."""
BUSY_SHARE = 0.1
"""The process is idle if it uses less than this share of one core."""

_ON_THEIR_OWN = (
    *("torch._dynamo.convert_frame", "torch._inductor", "torch.utils.cpp_extension", "torch.utils.file_baton"),
    *("triton.compiler", "triton.runtime.build", "subprocess", "bdb", "debugpy", "pydevd", "_pydevd_bundle"),
)
"""These modules never wait for a replica."""


class WatchedThread:
    __slots__ = ("_clock", "_ident", "_wait_channel")

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        # The number of the clock holds the thread's: asking for a thread that has ended is an error, not a crash.
        self._clock = time.pthread_getcpuclockid(self._ident) if sys.platform == "linux" else None
        self._wait_channel = f"/proc/self/task/{threading.get_native_id()}/wchan"

    def used_s(self) -> float:
        """The thread's CPU time in seconds; 0 if it has ended or the system does not show it."""
        try:
            return 0.0 if self._clock is None else time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def waits_for_a_lock(self) -> bool:
        try:
            with open(self._wait_channel) as file:
                return "futex" in file.read()
        except OSError:
            return False

    def is_on_its_own(self, until: str) -> bool:
        """Whether one of `_ON_THEIR_OWN` is on the stack above the module `until`."""
        frame = sys._current_frames().get(self._ident)
        while frame is not None and (name := str(frame.f_globals.get("__name__"))) != until:
            if any(f"{name}.".startswith(f"{module}.") for module in _ON_THEIR_OWN):
                return True
            frame = frame.f_back
        return False


class WatchedRun(ABC):
    """`hazards` is the calls' shared state at the moment of a rescue, else None."""

    __slots__ = ("_checks", "_devices", "_idle_checks", "_last", "hazards", "slow_checks")

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self.hazards: ThreadHazards | None = None
        self.slow_checks = SLOW_CHECKS
        self._checks = self._idle_checks = 0
        self._last: tuple[int | None, float, float, float] = (None, 0.0, 0.0, 0.0)

    @abstractmethod
    def run(self) -> list[Any]:
        """The results in order."""

    @property
    @abstractmethod
    def progress(self) -> int | None:
        """A number that changes with progress; None if no other call could be helped."""

    @property
    @abstractmethod
    def thread(self) -> WatchedThread | None:
        """None if the running call has not begun."""

    @abstractmethod
    def rescue_others(self) -> None:
        """Let every other call run on a thread."""

    def check(self) -> None:
        progress, thread = self.progress, self.thread
        thread_s = 0.0 if thread is None else thread.used_s()
        process_s, now_s = time.process_time(), time.monotonic()
        last_progress, last_thread_s, last_process_s, last_s = self._last
        self._last = progress, thread_s, process_s, now_s
        if progress != last_progress or progress is None or thread is None:
            self._checks = self._idle_checks = 0
            return
        self._checks += 1
        is_idle = thread_s == last_thread_s and process_s - last_process_s < BUSY_SHARE * (now_s - last_s)
        is_idle = is_idle and thread.waits_for_a_lock()
        self._idle_checks = self._idle_checks + 1 if is_idle else 0
        is_stalled = self._idle_checks >= WAITING_CHECKS or self._checks >= self.slow_checks
        if is_stalled and not thread.is_on_its_own(until=type(self).__module__):
            self.rescue_others()


class StallWatchdog:
    def __init__(self) -> None:
        self._running: set[WatchedRun] = set()
        self._process: int | None = None
        self._has_ended_once = False

    def run(self, watched: WatchedRun) -> list[Any]:
        """Like `WatchedRun.run`, with a rescue if it stalls."""
        if self._process != os.getpid():  # the first run, or the first after a fork, which leaves the thread behind
            self._start()
        if not self._has_ended_once:
            watched.slow_checks *= FIRST_FACTOR
        try:
            self._running.add(watched)
            results = watched.run()
            self._has_ended_once = True
            return results
        finally:
            self._running.discard(watched)

    def _start(self) -> None:
        ending: SimpleQueue[None] = SimpleQueue()  # its `put` is safe in any thread, also during garbage collection
        weakref.finalize(self, ending.put, None)
        threading.Thread(target=_watch, args=(ending, self._running), name="dp-lane-watchdog", daemon=True).start()
        self._process = os.getpid()


def _watch(ending: SimpleQueue[None], running: set[WatchedRun]) -> None:
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            check_all(list(running))


def check_all(running: Iterable[WatchedRun]) -> None:
    """No variable refers to a run between two checks."""
    for run in running:
        run.check()
