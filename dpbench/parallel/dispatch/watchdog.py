"""The stall watchdog: a thread that checks whether a run of replicas makes progress, and helps if it does not.

Replicas may wait for each other, for example at the barrier of a synchronised batch norm. If only one of them runs at
a time, the first would wait for ever. The watchdog lets the others run at the same time in two cases:

waiting   the running replica waits for a lock while the process is idle (`standstill.py`), in a few checks running
slow      the run has made no progress for seconds, as when replicas poll, or on a system that does not show waits; in
          a wrapper's first run for minutes

Neither holds while the replica is in a compiler or a debugger. If the replica did not wait for the others, the rescue
changes nothing but the order of the calls: a mistake costs time, and the order in which random numbers are drawn.
"""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import torch

from dpbench.parallel.dispatch.standstill import Moment, WatchedThread
from dpbench.parallel.dispatch.thread_hazards import ThreadHazards

CHECK_EVERY_S = 0.25
WAITING_CHECKS = 2
"""A replica that waits for a lock, in an idle process, is rescued after this many checks without a change."""
SLOW_CHECKS = 40
"""Any run is rescued after this many checks without progress, unless it compiles."""
FIRST_FACTOR = 12
"""Before a run of the wrapper has ended, a slow one gets this many times more checks.

A first forward may compile, autotune or load kernels, for a minute and more, and threads would disturb that.
"""
_numbers = count()


class Sighting(NamedTuple):
    """What the watchdog saw of a run: for how many checks it made no progress, and for how many its thread was idle.

    Without a reference to the run or its replicas.
    """

    progress: int | None
    moment: Moment | None
    checks: int = 0
    idle_checks: int = 0


class WatchedRun(ABC):
    """The calls of one forward, of which one runs at a time.

    `hazards` is their shared state at the moment of a rescue, else None. `was_waiting` says that the running call then
    waited for a lock in an idle process. `slow_checks` is the number of checks after which a run is slow.
    """

    __slots__ = ("_devices", "hazards", "number", "slow_checks", "was_waiting")

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.number = next(_numbers)
        self._devices = devices
        self.hazards: ThreadHazards | None = None
        self.was_waiting = False
        self.slow_checks = SLOW_CHECKS

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

    def look(self, last: Sighting | None) -> Sighting:
        """The progress since the last sighting."""
        progress, moment = self.progress, None if self.thread is None else self.thread.moment()
        if last is None or last.progress != progress:
            return Sighting(progress, moment)
        is_idle = moment is not None and last.moment is not None and moment.is_idle_since(last.moment)
        return Sighting(progress, moment, last.checks + 1, last.idle_checks + 1 if is_idle else 0)

    def rescue_if_stalled(self, sighting: Sighting) -> None:
        """Rescue the other calls if the running one waits for a lock, or is slow."""
        thread = self.thread
        if sighting.progress is None or thread is None:
            return
        is_waiting = sighting.idle_checks >= WAITING_CHECKS and thread.waits_for_a_lock()
        if (is_waiting or sighting.checks >= self.slow_checks) and not thread.is_on_its_own(
            until=type(self).__module__
        ):
            self.was_waiting = is_waiting
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
    seen: Mapping[int, Sighting] = {}
    while True:
        try:
            return ending.get(timeout=CHECK_EVERY_S)
        except Empty:
            seen = check_progress(list(running), seen)


def check_progress(running: Iterable[WatchedRun], seen: Mapping[int, Sighting]) -> dict[int, Sighting]:
    """Rescue the runs that have stalled; return what was seen now, by the run's number."""
    now = {}
    for run in running:
        now[run.number] = run.look(seen.get(run.number))
        run.rescue_if_stalled(now[run.number])
    return now
