"""The stall watchdog: a thread that checks whether a run of replicas makes progress, and helps if it does not.

Replicas may wait for each other, for example at the barrier of a synchronised batch norm. If only one of them runs at
a time, the first would wait for ever. The watchdog lets the others run at the same time in two cases:

waiting   the running replica waits for a lock while the process is idle. On Linux the kernel names the call in which a
          thread waits: a lock, condition, queue or barrier is a *futex*
slow      the run has made no progress for seconds; in a wrapper's first run, which may load kernels, for minutes

Neither holds while the replica is in a compiler or a debugger. If the replica did not wait for the others, the rescue
changes nothing but the order of the calls: a mistake costs time, and the order in which random numbers are drawn.
"""

import os
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import torch

from dpbench.parallel.dispatch.thread_hazards import ThreadHazards

CHECK_EVERY_S = 0.25
WAITING_CHECKS = 2
"""A replica that waits for a lock, in an idle process, is rescued after this many checks without progress."""
SLOW_CHECKS = 40
"""Any run is rescued after this many checks without progress."""
FIRST_FACTOR = 12
"""Before a run of the wrapper has ended, a slow one gets this many times more checks."""
BUSY_SHARE = 0.1
"""The process is idle if it uses less than this share of one core."""

_ON_THEIR_OWN = (
    *("torch._dynamo.convert_frame", "torch._inductor", "torch.utils.cpp_extension", "torch.utils.file_baton"),
    *("triton.compiler", "triton.runtime.build", "subprocess", "bdb", "debugpy", "pydevd", "_pydevd_bundle"),
)
"""Compilers, child processes and debuggers: they wait for work of their own, or for the user, never for a replica."""


class WatchedThread:
    """The calling thread, to be watched from another one."""

    __slots__ = ("_ident", "_wait_channel")

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        self._wait_channel = f"/proc/self/task/{threading.get_native_id()}/wchan"

    def waits_for_a_lock(self) -> bool:
        """Whether the kernel says that the thread waits for a lock; False where it does not say."""
        try:
            with open(self._wait_channel) as file:
                return "futex" in file.read()
        except OSError:
            return False

    def is_on_its_own(self, until: str) -> bool:
        """Whether a compiler, a debugger or the like is on the thread's stack, above the module `until`."""
        frame = sys._current_frames().get(self._ident)
        while frame is not None and (name := str(frame.f_globals.get("__name__"))) != until:
            if any(f"{name}.".startswith(f"{module}.") for module in _ON_THEIR_OWN):
                return True
            frame = frame.f_back
        return False


class WatchedRun(ABC):
    """The calls of one forward, of which one runs at a time.

    `hazards` is their shared state at the moment of a rescue, else None. `slow_checks` is the number of checks after
    which a run is slow.
    """

    __slots__ = ("_checks", "_devices", "_idle_checks", "_last", "hazards", "slow_checks")

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self.hazards: ThreadHazards | None = None
        self.slow_checks = SLOW_CHECKS
        self._checks = self._idle_checks = 0
        self._last: tuple[int | None, float, float] = (None, 0.0, 0.0)

    @abstractmethod
    def run(self) -> list[Any]:
        """The results in order, when all calls have ended."""

    @property
    @abstractmethod
    def was_rescued(self) -> bool:
        """Whether the watchdog has let other calls run at the same time."""

    @property
    @abstractmethod
    def progress(self) -> int | None:
        """A number that changes when the run makes progress; None if no other call could be helped."""

    @property
    @abstractmethod
    def thread(self) -> WatchedThread | None:
        """The thread of the running call; None if it has not begun."""

    @abstractmethod
    def rescue_others(self) -> None:
        """Let all other calls run, each on a thread."""

    def check(self) -> None:
        """Rescue the other calls if the running one waits for a lock, or is slow."""
        progress, used_s, now_s = self.progress, time.process_time(), time.monotonic()
        last_progress, last_used_s, last_s = self._last
        self._last = progress, used_s, now_s
        thread = self.thread
        if progress != last_progress or progress is None or thread is None:
            self._checks = self._idle_checks = 0
            return
        self._checks += 1
        is_idle = used_s - last_used_s < BUSY_SHARE * (now_s - last_s) and thread.waits_for_a_lock()
        self._idle_checks = self._idle_checks + 1 if is_idle else 0
        is_stalled = self._idle_checks >= WAITING_CHECKS or self._checks >= self.slow_checks
        if is_stalled and not thread.is_on_its_own(until=type(self).__module__):
            self.rescue_others()


class StallWatchdog:
    """Watches the runs of one wrapper, from a thread that ends with the wrapper."""

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
        self._running.add(watched)
        try:
            results = watched.run()
            self._has_ended_once = True
            return results
        finally:
            self._running.discard(watched)

    def _start(self) -> None:
        self._process = os.getpid()
        ending: SimpleQueue[None] = SimpleQueue()  # its `put` is safe in any thread, also during garbage collection
        weakref.finalize(self, ending.put, None)
        threading.Thread(target=_watch, args=(ending, self._running), name="dp-lane-watchdog", daemon=True).start()


def _watch(ending: SimpleQueue[None], running: set[WatchedRun]) -> None:
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            check_all(list(running))


def check_all(running: Iterable[WatchedRun]) -> None:
    """Check each run. Nothing here refers to a run between two checks."""
    for run in running:
        run.check()
