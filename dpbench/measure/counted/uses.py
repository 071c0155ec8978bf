"""Threads of the wrapper in uses that a benchmark's step does not have, on CPU lanes.

long          what few of a thousand forwards do
lanes         those that cannot meet when all are on threads
threads       those that are left when wrappers that ran on threads are gone
callers       the operators before which a thread's call holds up another thread's, on two wrappers or one
idle          threads that wake often while a wrapper with the default dispatch is idle
"""

import gc
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.cases.variants import VariantId, VariantName
from dpbench.measure.counted.more_steps import count_more_steps
from dpbench.measure.pinned import pinned
from dpbench.variants.registry import variant_of

_LANES, _ITEMS, _FEATURES = 4, 8, 16
_TURNS_BEFORE, _FORWARDS = 2, 1100
_WRAPPERS = 3
_SETTLED_AFTER, _IDLE_S, _OFTEN = 10, 0.1, 5
"""Forwards after which `auto` has no trials left; seconds; wakes in that time that are often."""
_PATIENCE_S, _LITTLE_S = 5.0, 0.1
"""Waits that only faulty code needs. After two, the short one: a lock around each operator would take minutes."""


def count_uses() -> dict[str, int]:
    """Counters by name; garbage collection must be off."""
    return {**_long(), **_threads(), **_callers(), **_idle()}


def _wrapper(dispatch: str, lanes: int = _LANES, model: nn.Module | None = None) -> Any:
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(_FEATURES, _FEATURES), nn.BatchNorm1d(_FEATURES), nn.Dropout(0.5))
    variant = VariantId(VariantName.TUNED).with_parameters(dispatch=dispatch)
    return variant_of(variant).wrap(model, [torch.device("cpu")] * lanes)


def _batch() -> Tensor:
    return torch.ones(_ITEMS, _FEATURES)


def _long() -> dict[str, int]:
    wrapper = _wrapper("sequence", 2)
    with torch.no_grad():
        more = count_more_steps(lambda: wrapper(_batch()), _FORWARDS)
    return {f"long.{name}": value for name, value in more.model_dump().items()}


class _Meeting(nn.Module):
    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.barrier, self.apart = threading.Barrier(lanes), list[Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        try:
            self.barrier.wait(_PATIENCE_S)
        except threading.BrokenBarrierError:
            self.apart.append(x)
        return x


def _threads() -> dict[str, int]:
    before, model = threading.active_count(), _Meeting(_LANES)
    for _ in range(_WRAPPERS):
        _wrapper("threads", model=model)(_batch())
        gc.collect()
    until_s = time.monotonic() + _PATIENCE_S
    while threading.active_count() > before and time.monotonic() < until_s:
        time.sleep(0.001)
    return {"threads.left": max(0, threading.active_count() - before), "lanes.apart": len(model.apart)}


def _idle() -> dict[str, int]:
    tasks, wrapper = Path("/proc/self/task"), _wrapper("auto")
    before = set(tasks.iterdir())
    with pinned("sequence"):
        for _ in range(_SETTLED_AFTER):
            wrapper(_batch())
    threads = set(tasks.iterdir()) - before
    wakes = {thread: _wakes(thread) for thread in threads}
    time.sleep(_IDLE_S)
    return {"idle.waking_threads": sum(_wakes(thread) - wakes[thread] >= _OFTEN for thread in threads)}


def _wakes(thread: Path) -> int:
    """How often the thread has begun to wait; 0 if it has ended."""
    with suppress(OSError):
        return int(
            (thread / "status").read_text().partition("nonvoluntary")[0].rpartition("voluntary_ctxt_switches:")[2]
        )
    return 0


class _Pause(TorchDispatchMode):
    def __init__(self, number: int, at_operator: Callable[[], object]) -> None:
        super().__init__()
        self.seen = 0
        self._number, self._at_operator = number, at_operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.seen == self._number:
            self._at_operator()
        self.seen += 1
        return func(*args, **(kwargs or {}))


def _callers() -> dict[str, int]:
    one, other = _wrapper("sequence", 2), _wrapper("sequence", 2)
    for _ in range(_TURNS_BEFORE):
        one(_batch()), other(_batch())
    with _Pause(-1, int) as alone:
        one(_batch())
    return {
        f"callers.apart_on_{name}": _apart(one, second, alone.seen)
        for name, second in {"two_wrappers": other, "one_wrapper": one}.items()
    }


def _apart(paused: nn.Module, called: nn.Module, operators: int) -> int:
    apart = 0
    for number in range(operators):
        apart += not _can_meet(paused, called, number, _PATIENCE_S if apart < 2 else _LITTLE_S)
    return apart


def _can_meet(
    paused: Callable[[Tensor], object], called: Callable[[Tensor], object], number: int, patience_s: float
) -> bool:
    """Whether `called` ends while another thread's `paused` stands before its operator `number`."""
    stands, may_go = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        may_go.wait()

    def call_paused() -> None:
        try:
            with _Pause(number, stand):
                paused(_batch())
        finally:
            stands.set()

    threads = [threading.Thread(target=call_paused), threading.Thread(target=called, args=(_batch(),))]
    threads[0].start()
    stands.wait()
    threads[1].start()
    threads[1].join(patience_s)
    can_meet = not threads[1].is_alive()
    may_go.set()
    for thread in threads:
        thread.join()
    return can_meet
