"""Shares by measuring: the first training steps are timed, then one choice is kept.

No step is delayed: the host never waits for a device. Marks on accelerators are events, which are read once they have
been reached. Those of a lane's end lie on the base's device, because times of different devices cannot be compared::

    base's device    compute 0   begin ──── forward of replica 0 ─────┐
                     probe 0                                          └> end of lane 0
                     probe i                                  ┌───────────────────────> end of lane i
    lane i's device  compute i           forward of replica i ┘

On the CPU a lane's time is that of its own call, since lanes may run one after the other.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median_low
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dpbench.parallel.lanes import current_stream, wait_stream
from dpbench.parallel.shares.sizes import Shares, shares_of_lanes
from dpbench.parallel.shares.trials import ShareTrial, equal_shares, next_shares

Call = Callable[[], Any]
Kind = tuple[torch.Size, ...]
"""The shapes of a forward's inputs."""

SAMPLES = 5
"""Steps of each trial. Their median counts. The first step of a trial is not among them: it allocates memory."""
OTHER_STEPS = 10
"""Steps in a row with inputs of other shapes, after which all begins anew with their shapes."""


class Timing(Protocol):
    """The marks of one forward."""

    def around(self, calls: Sequence[Call]) -> list[Call]:
        """The lanes' calls, each of which also marks its end."""

    def is_whole(self) -> bool:
        """Whether all lanes were called."""

    def is_reached(self) -> bool:
        """Whether the devices have reached all marks so far."""

    def lanes_s(self) -> tuple[float, ...]:
        """The seconds until each lane ended."""

    def until_s(self, following: Any) -> float:
        """The seconds from the begin of this forward to that of the following one."""


class HostTiming:
    """Times on the host, for lanes on the CPU."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._times_s = [0.0] * len(devices)
        self._begin_s = time.perf_counter()

    def around(self, calls: Sequence[Call]) -> list[Call]:
        return [partial(self._timed, lane, call) for lane, call in enumerate(calls)]

    def _timed(self, lane: int, call: Call) -> Any:
        begin_s = time.perf_counter()
        result = call()
        self._times_s[lane] = time.perf_counter() - begin_s
        return result

    def is_whole(self) -> bool:
        return all(self._times_s)

    def is_reached(self) -> bool:
        return True

    def lanes_s(self) -> tuple[float, ...]:
        return tuple(self._times_s)

    def until_s(self, following: "HostTiming") -> float:
        return following._begin_s - self._begin_s


class EventTiming:
    """Times on the base's device. `probes` are streams of that device, one for each lane."""

    def __init__(self, devices: Sequence[torch.device], probes: Sequence[Any]) -> None:
        self._devices, self._probes = devices, probes
        self._ends: list[Any] = [None] * len(devices)
        self._begin = self._mark(current_stream(devices[0]))

    def _mark(self, stream: Any) -> Any:
        event = torch.get_device_module(self._devices[0]).Event(enable_timing=True)
        event.record(stream)
        return event

    def around(self, calls: Sequence[Call]) -> list[Call]:
        computes = [current_stream(device) for device in self._devices]  # the caller's; a lane's thread has others
        return [partial(self._timed, lane, call, computes[lane]) for lane, call in enumerate(calls)]

    def _timed(self, lane: int, call: Call, compute: Any) -> Any:
        result = call()
        wait_stream(self._probes[lane], compute)
        self._ends[lane] = self._mark(self._probes[lane])
        return result

    def is_whole(self) -> bool:
        return None not in self._ends

    def is_reached(self) -> bool:
        return self._begin.query() and all(end.query() for end in self._ends if end is not None)

    def lanes_s(self) -> tuple[float, ...]:
        return tuple(self._begin.elapsed_time(end) / 1000 for end in self._ends)

    def until_s(self, following: "EventTiming") -> float:
        return float(self._begin.elapsed_time(following._begin)) / 1000


def timing_of(devices: Sequence[torch.device]) -> Callable[[], Timing] | None:
    """A function that begins the timing of a forward; None if these devices measure no times."""
    if devices[0].type == "cpu":
        return partial(HostTiming, devices)
    module = torch.get_device_module(devices[0])
    try:
        module.Event(enable_timing=True).elapsed_time(module.Event(enable_timing=True))
    except NotImplementedError:
        return None
    except (RuntimeError, ValueError):  # they were never recorded, so devices that measure times refuse too
        pass
    return partial(EventTiming, devices, [module.Stream(devices[0]) for _ in devices])


class MeasuredShares:
    """The shares of one wrapper under "auto": equal at first, then those that measured fastest.

    `is_frozen` returns whether the shares must stay, as within an accumulation. Steps are measured all the same.
    """

    def __init__(
        self,
        devices: Sequence[torch.device],
        is_frozen: Callable[[], bool] = lambda: False,
        begin_timing: Callable[[], Timing] | None = None,
    ) -> None:
        self._lanes, self._is_frozen = len(devices), is_frozen
        self._begin_timing = begin_timing or timing_of(devices)
        self.is_fixed = self._lanes == 1 or self._begin_timing is None
        self._lock = threading.Lock()
        self._restart(())

    def _restart(self, kind: Kind) -> None:
        self._kind, self._other_steps = kind, 0
        self._trials: list[ShareTrial] = []
        self._begin_trial(equal_shares(self._lanes))

    def _begin_trial(self, shares: Shares) -> None:
        self._used = shares
        self.shares = shares_of_lanes(shares, self._lanes)
        self._samples: list[tuple[float, tuple[float, ...]]] = []
        self._pending: deque[tuple[Timing, Timing]] = deque()
        self._now: Timing | None = None
        self._last: Timing | None = None

    def begin(self, arguments: Any, dim: int) -> None:
        """Begin the timing of a forward. The shares change here only. Forwards without grad mode do not count."""
        if self.is_fixed or not self._lock.acquire(blocking=False):
            return
        try:
            last, self._last, self._now = self._last, None, None
            kind = tuple(leaf.shape for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor) and leaf.dim())
            if torch.is_grad_enabled() and self._is_counted(kind):
                self._collect()
                self._decide(dim)
                self._time(last)
        finally:
            self._lock.release()

    def _is_counted(self, kind: Kind) -> bool:
        """Whether the inputs have the shapes of the steps measured so far. If others stay, all begins anew."""
        self._other_steps = 0 if kind == self._kind else self._other_steps + 1
        if (self._other_steps > OTHER_STEPS or not self._kind) and not self._is_frozen():
            self._restart(kind)
        return bool(kind) and kind == self._kind

    def _collect(self) -> None:
        """Read the timings that are over."""
        while self._pending and all(timing.is_reached() for timing in self._pending[0]):
            timing, following = self._pending.popleft()
            self._samples.append((timing.until_s(following), timing.lanes_s()))

    def _decide(self, dim: int) -> None:
        """Go on to the next trial if this one has enough samples."""
        if len(self._samples) <= SAMPLES or self._is_frozen():
            return
        steps_s, lanes_s = zip(*self._samples[1:], strict=True)
        self._trials.append(
            ShareTrial(self._used, median_low(steps_s), tuple(map(median_low, zip(*lanes_s, strict=True))))
        )
        shape = self._kind[0]
        following = next_shares(self._trials, self._lanes, shape[dim] if -len(shape) <= dim < len(shape) else 0)
        self._begin_trial(following.shares)
        self.is_fixed = following.is_fixed

    def _time(self, last: Timing | None) -> None:
        if self.is_fixed or self._begin_timing is None or len(self._samples) > SAMPLES:
            return
        self._now = self._begin_timing()
        if last is not None:
            self._pending.append((last, self._now))

    def around(self, calls: Sequence[Call]) -> Sequence[Call]:
        """The lanes' calls, with marks if this forward is timed."""
        return calls if self._now is None or len(calls) != self._lanes else self._now.around(calls)

    def end(self) -> None:
        """Report that all lanes were called without an error, and that nothing else disturbed their times."""
        if self._now is not None and self._now.is_whole():
            self._last = self._now
