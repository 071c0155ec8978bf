"""Interleaved dispatch: all lanes are under way at once, but one runs at a time and passes the baton on.

Each lane has a thread, and with it its own thread-local state. A lane passes the baton to the next lane (`baton.py`)
after its first leaf module, then after two more, four, and so on up to `MOST_LEAVES`. Leaf modules are modules without
children, and custom ones. So every device has work early, the threads do not compete for the interpreter's lock, and
the order of all operators is the same in every run.

The lane passes the baton on where a replica's module *reads* a child, from its table of children. That is just before
it calls the child. No hook sees it, a call costs nothing more, and a copy of a replica behaves as the replica.
Outside of an interleaved run, and in threads that the forward itself has started, a read is only a read.
"""

import contextvars
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from dpbench.parallel.arrival import here
from dpbench.parallel.dispatch.baton import Baton
from dpbench.parallel.dispatch.context import ThreadState
from dpbench.parallel.dispatch.thread_hazards import ThreadHazards
from dpbench.parallel.dispatch.thread_pool import ThreadPools
from dpbench.parallel.dispatch.watchdog import WatchedRun, WatchedThread
from dpbench.parallel.dispatch.whole_sections import section

Call = Callable[[], Any]
MOST_LEAVES = 16
"""Leaf modules that a lane calls at most between two passes of the baton.

A pass costs 10 to 25 us. With 16, a forward with ResNet-50's modules takes the host 10 % longer than in sequence; with
4 it takes 22 % longer, with 1 48 %. The first turns are shorter, because then the other devices have no work yet.
"""


class _LaneInTurn:
    """One lane of a run, as its thread sees it: counts leaf modules, and passes the baton on."""

    __slots__ = ("_baton", "_home", "_lane", "_leaves", "_most")

    def __init__(self, baton: Baton, lane: int, home: Hashable) -> None:
        self._baton, self._lane, self._home = baton, lane, home
        self._leaves, self._most = 0, 1

    def reach(self, is_leaf: bool) -> None:
        """Before a child is read: pass the baton on if enough leaves were, outside of whole sections."""
        if self._leaves >= self._most and section() == self._home:
            self._leaves, self._most = 0, min(2 * self._most, MOST_LEAVES)
            self._baton.pass_on(self._lane)
        self._leaves += is_leaf


class InterleavedRun(WatchedRun):
    """The calls of one forward, of which one runs at a time.

    If the run stalls, the watchdog drops the baton. Then all lanes run at the same time until the forward ends.
    """

    __slots__ = ("_baton", "_calls", "_home", "_pools", "_state", "_threads")

    def __init__(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, pools: ThreadPools
    ) -> None:
        super().__init__(devices)
        self._baton = Baton(len(calls))
        self._calls = calls
        self._home = section()
        self._pools = pools
        self._state = state
        self._threads: list[WatchedThread | None] = [None] * len(calls)

    @property
    def was_rescued(self) -> bool:
        return self.hazards is not None

    @property
    def progress(self) -> int | None:
        """How often the baton has moved; None if no lane waits for it."""
        return None if self._baton.is_alone or self._baton.is_dropped else self._baton.passes

    @property
    def thread(self) -> WatchedThread | None:
        return self._threads[self._baton.holder]

    def run(self) -> list[Any]:
        """The results in order, when all calls have ended. The first call runs in the caller's thread."""
        state = self._state
        elsewhere = [
            partial(self._run_lane, lane, partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)))
            for lane, call in enumerate(self._calls[1:], 1)
        ]
        try:
            return self._pools.run(partial(self._run_lane, 0, partial(state.run_here, self._calls[0])), elsewhere)
        finally:
            self._baton.drop()  # an interrupt may have come before the first lane began

    def rescue_others(self) -> None:
        self.hazards = ThreadHazards(self._devices)
        self._baton.drop()

    def _run_lane(self, lane: int, call: Call) -> Any:
        try:
            self._baton.take(lane)
            self._threads[lane] = WatchedThread()
            return _as_lane(_LaneInTurn(self._baton, lane, self._home), call)
        finally:
            self._baton.leave(lane)


def _as_lane(lane: _LaneInTurn, call: Call) -> Any:
    """Call `call` as this lane; a run around this one goes on afterwards."""
    around, here.lane = here.lane, lane
    try:
        return call()
    finally:
        here.lane = around
