"""Uses of the wrapper that a benchmark's step does not have, on CPU lanes, each counted in its third turn.

toggled       a forward in training, and one in evaluation, in turns
two_forwards  a second forward before the backward of both
threads       those that are left when wrappers that ran on threads are gone
callers       two threads call a wrapper each, or the same one: the operators at which they cannot be at once
"""

import gc
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.cases.variants import VariantId, VariantName
from dpbench.measure.counted.host_work import HostWork
from dpbench.measure.python_calls import PythonCalls
from dpbench.records.counts import Phase
from dpbench.variants.registry import variant_of

_LANES, _ITEMS, _FEATURES = 4, 8, 16
_TURNS_BEFORE = 2
_WRAPPERS = 3
_PATIENCE_S = 5.0
"""A wait that only code with a fault needs: for a thread that does not end, or a caller that cannot come."""


def count_uses() -> dict[str, int]:
    """Return each counter by its name. Garbage collection must be switched off."""
    return {**_counted("toggled", _toggled), **_counted("two_forwards", _two_forwards), **_threads_left(), **_callers()}


def _wrapper(dispatch: str) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(_FEATURES, _FEATURES), nn.BatchNorm1d(_FEATURES), nn.Dropout(0.5))
    variant = VariantId(VariantName.TUNED).with_parameters(dispatch=dispatch)
    return variant_of(variant).wrap(model, [torch.device("cpu")] * _LANES)


def _batch() -> Tensor:
    return torch.ones(_ITEMS, _FEATURES)


def _toggled(wrapper: nn.Module) -> None:
    for is_training in (True, False):
        wrapper.train(is_training)
        wrapper(_batch())


def _two_forwards(wrapper: nn.Module) -> None:
    outputs = [wrapper(_batch()) for _ in range(2)]
    torch.stack([output.sum() for output in outputs]).sum().backward()


def _counted(name: str, use: Callable[[nn.Module], None]) -> dict[str, int]:
    wrapper = _wrapper("sequence")
    for _ in range(_TURNS_BEFORE):
        use(wrapper)
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        use(wrapper)
    with HostWork() as work:
        work.enter(Phase.FORWARD)
        use(wrapper)
    return {
        f"{name}.python_calls": calls.by_phase()[Phase.FORWARD],
        f"{name}.host_operators": work.operators[Phase.FORWARD],
        f"{name}.host_bytes": work.written_bytes[Phase.FORWARD],
    }


def _threads_left() -> dict[str, int]:
    before = threading.active_count()
    for _ in range(_WRAPPERS):
        _wrapper("threads")(_batch())
        gc.collect()
    until_s = time.monotonic() + _PATIENCE_S
    while threading.active_count() > before and time.monotonic() < until_s:
        time.sleep(0.001)
    return {"threads.left": threading.active_count() - before}


class _Meeting(TorchDispatchMode):
    """At operator `number` of this thread, wait for the other caller. `came` says whether it came."""

    def __init__(self, number: int, barrier: threading.Barrier) -> None:
        super().__init__()
        self.seen, self.came = 0, True
        self._number, self._barrier = number, barrier

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.seen == self._number:
            try:
                self._barrier.wait(_PATIENCE_S)
            except threading.BrokenBarrierError:
                self.came = False
        self.seen += 1
        return func(*args, **(kwargs or {}))


def _callers() -> dict[str, int]:
    one, other = _wrapper("sequence"), _wrapper("sequence")
    alone = [_Meeting(-1, threading.Barrier(1)) for _ in range(_TURNS_BEFORE)]
    for meeting in alone:
        with meeting:
            other(_batch())
        one(_batch())
    pairs = {"two_wrappers": (one, other), "one_wrapper": (one, one)}
    return {
        f"callers.apart_on_{name}": sum(not _can_meet(pair, number) for number in range(alone[-1].seen))
        for name, pair in pairs.items()
    }


def _can_meet(wrappers: Sequence[nn.Module], number: int) -> bool:
    barrier = threading.Barrier(len(wrappers))
    meetings = [_Meeting(number, barrier) for _ in wrappers]

    def call(wrapper: nn.Module, meeting: _Meeting) -> None:
        with meeting:
            wrapper(_batch())

    threads = [threading.Thread(target=call, args=pair) for pair in zip(wrappers, meetings, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all(meeting.came for meeting in meetings)
