"""Interleaved dispatch: all lanes are under way at once, but one runs at a time and passes the baton on.

Each lane has a thread, and with it its own thread-local state. A lane passes the baton to the next lane after its first
leaf module, then after two more, four, and so on up to `MOST_LEAVES`. Leaf modules are modules without children, and
custom ones. So every device has work early, and the threads do not compete for the interpreter's lock. The order of all
operators is the same in every run.

The lane passes the baton on where a replica's module *reads* a child, from its table of children. No hook sees the
read, and a copy of a replica behaves as the replica::

    lane 0   ██──┐     ┌─██──┐     ┌─██ ends
    lane 1       └─██──│     └─██──│     └─██ ...
    lane 2           └─██        └─██

Each lane has a lock that is open while the baton is on its way. So a lane that has not started yet keeps its place.

A lane passes the baton on only in the section in which its forward began (`section`). Other lanes' draws would disturb
a checkpoint, which draws again in its recomputation.
"""

import contextvars
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch._guards import CompileContext
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from dpbench.parallel.tables import here
from dpbench.parallel.thread_state import ThreadHazards, ThreadState, setting_values
from dpbench.parallel.threads import ThreadPools, WatchedRun, WatchedThread

_GONE = -1


class Baton:
    """The lane `holder` runs, lane 0 first. Once the baton `is_dropped`, all lanes run and no lane waits."""

    __slots__ = ("_gates", "_next", "holder", "is_dropped", "passes")

    # `_next` has for each lane the one that comes after it, or `_GONE` for a lane that has left.

    def __init__(self, count: int) -> None:
        self._gates = [threading.Lock() for _ in range(count)]
        for gate in self._gates[1:]:
            gate.acquire()
        self._next = [*range(1, count), 0]
        self.holder = 0
        self.passes = 0
        self.is_dropped = False

    @property
    def is_alone(self) -> bool:
        return self._next[self.holder] == self.holder

    def take(self, lane: int) -> None:
        self._gates[lane].acquire()

    def pass_on(self, lane: int) -> None:
        """Let the others run until the baton is back; drop it at an interrupt."""
        if self.is_dropped or self._next[lane] == lane:
            return
        try:
            self._give(self._next[lane])
            self._gates[lane].acquire()
        except BaseException:
            self.drop()
            raise

    def leave(self, lane: int) -> None:
        """Pass the baton on for good, or drop it if the lane was interrupted while it waited."""
        if self.holder != lane:
            self.drop()
        if self.is_dropped:
            return
        following = self._next[lane]
        if following != lane:
            self._next[self._next.index(lane)] = following
            self._next[lane] = _GONE
            self._give(following)

    def drop(self) -> None:
        # Before the gates open: a lane that has not seen it finds its gate open, whatever it does.
        self.is_dropped = True
        for gate in self._gates:
            _open(gate)

    def _give(self, lane: int) -> None:
        self.holder = lane
        self.passes += 1
        _open(self._gates[lane])


def _open(gate: threading.Lock) -> None:
    try:  # noqa: SIM105 - `suppress` takes six times as long
        gate.release()
    except RuntimeError:
        pass  # `drop` has opened it already


def section() -> Hashable:
    return (
        torch.is_grad_enabled(),
        torch._C._autograd._top_saved_tensors_default_hooks(False) is None,
        torch._C._len_torch_dispatch_stack(),
        torch._C._are_functorch_transforms_active(),
        forward_ad._current_level,
        parametrize._cache_enabled,
        CompileContext.try_get() is None,
        setting_values(),
    )


Call = Callable[[], Any]
MOST_LEAVES = 16
"""A pass costs 10 to 25 us. With 16, a forward with ResNet-50's modules takes the host 10 % longer than in sequence;
with 4 it takes 22 % longer, with 1 48 %.
"""


class _LaneInTurn:
    __slots__ = ("_baton", "_home", "_lane", "_leaves", "_most")

    def __init__(self, baton: Baton, lane: int, home: Hashable) -> None:
        self._baton, self._lane, self._home = baton, lane, home
        self._leaves, self._most = 0, 1

    def reach(self, is_leaf: bool) -> None:
        """Pass the baton on if the lane has read enough leaves."""
        if self._leaves >= self._most and section() == self._home:
            self._leaves, self._most = 0, min(2 * self._most, MOST_LEAVES)
            self._baton.pass_on(self._lane)
        self._leaves += is_leaf


class InterleavedRun(WatchedRun):
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
    def progress(self) -> int | None:
        """How often the baton has moved; None if no lane waits for it."""
        return None if self._baton.is_alone or self._baton.is_dropped else self._baton.passes

    @property
    def thread(self) -> WatchedThread | None:
        return self._threads[self._baton.holder]

    def run(self) -> list[Any]:
        state = self._state
        elsewhere = [
            partial(self._run_lane, lane, partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)))
            for lane, call in enumerate(self._calls[1:], 1)
        ]
        first = partial(self._run_lane, 0, partial(state.run_here, self._calls[0]))
        return self._pools.run(first, elsewhere, give_up=self._baton.drop)

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
    around, here.lane = here.lane, lane
    try:
        return call()
    finally:
        here.lane = around
