"""Replicas one after the other, and the stall watchdog.

Replicas may wait for each other, for example at the barrier of a synchronised batch norm. The watchdog lets the others
run at the same time in two cases:

waiting   the running replica waits for a lock while the process is idle. On Linux the kernel names the call in which a
          thread waits: a lock, condition, queue or barrier is a *futex*. A wait for the GIL ends every 5 ms, so the
          thread's clock goes on
slow      the run has made no progress for seconds; in a wrapper's first run, which may load kernels, for minutes

A needless rescue costs time and changes the order in which random numbers are drawn.
"""

import contextvars
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import torch

from dpbench.parallel.thread_state import ThreadHazards, ThreadState
from dpbench.parallel.threads import Call, LaneThread, ThreadPools, value_of

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


_END: Any = object()


class SequentialRun:
    """The calls one after the other in the caller's thread; after a stall, the others at once on threads.

    `hazards` is the calls' shared state at the moment of a rescue, else None.
    """

    __slots__ = (
        *("_checks", "_context", "_count", "_devices", "_idle_checks", "_last", "_lock", "_pending", "_pools"),
        *("_rescued", "_state", "_thread", "hazards", "rescue", "slow_checks"),
    )

    def __init__(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, pools: ThreadPools
    ) -> None:
        self._count = len(calls)
        self._pending = deque([*calls, _END, _END])  # one end for each of two threads, which never take the same item
        self._devices = devices
        self._pools = pools
        self._state = state
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self.rescue: LaneThread | None = None
        self._rescued: SimpleQueue[Any] = SimpleQueue()
        self._thread = WatchedThread()
        self.hazards: ThreadHazards | None = None
        self.slow_checks = SLOW_CHECKS
        self._checks = self._idle_checks = 0
        self._last: tuple[int, float, float, float] = (0, 0.0, 0.0, 0.0)

    def run(self) -> list[Any]:
        """Call this in the thread that made the run."""
        calls = iter(self._pending.popleft, _END)
        results: list[Any] = []
        try:
            for call in calls:
                results.append(self._state.run_here(call))
            if len(results) < self._count:  # the watchdog has taken the others
                results += value_of(self._rescued.get())
            return results
        except BaseException:
            list(calls)  # after an interrupt no further call begins
            with self._lock:
                rescue = self.rescue
            if rescue is not None:
                rescue.wait()
            raise

    def check(self) -> None:
        pending = len(self._pending) - 2
        thread_s, process_s, now_s = self._thread.used_s(), time.process_time(), time.monotonic()
        last_pending, last_thread_s, last_process_s, last_s = self._last
        self._last = pending, thread_s, process_s, now_s
        if pending != last_pending or pending <= 0:  # progress, or no other call could be helped
            self._checks = self._idle_checks = 0
            return
        self._checks += 1
        is_idle = thread_s == last_thread_s and process_s - last_process_s < BUSY_SHARE * (now_s - last_s)
        is_idle = is_idle and self._thread.waits_for_a_lock()
        self._idle_checks = self._idle_checks + 1 if is_idle else 0
        is_stalled = self._idle_checks >= WAITING_CHECKS or self._checks >= self.slow_checks
        if is_stalled and not self._thread.is_on_its_own(until=__name__):
            self.rescue_others()

    def rescue_others(self) -> None:
        """Let every other call run on a thread."""
        with self._lock:
            hazards = ThreadHazards(self._devices)
            calls = [
                partial(self._state.run_elsewhere, partial(self._context.copy().run, call))
                for call in iter(self._pending.popleft, _END)
            ]
            if calls:
                self.hazards = hazards
                self.rescue = LaneThread("dp-lane-rescue")
                self.rescue.submit(partial(self._pools.run, calls[0], calls[1:]), self._rescued.put)


class StallWatchdog:
    def __init__(self) -> None:
        self._running: set[SequentialRun] = set()
        self._process: int | None = None
        self._has_ended_once = False

    def run(self, watched: SequentialRun) -> list[Any]:
        """Like `SequentialRun.run`, with a rescue if it stalls."""
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


def _watch(ending: SimpleQueue[None], running: set[SequentialRun]) -> None:
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            check_all(list(running))


def check_all(running: Iterable[SequentialRun]) -> None:
    """No variable refers to a run between two checks."""
    for run in running:
        run.check()
