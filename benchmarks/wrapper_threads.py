"""The wrapper's start, its threads, and the choices of its default dispatch, on CPU lanes; gate.toml names this file.

once_start    modules that its import adds to torch's, calls of the construction and of the first forward
long          what few of a thousand forwards do
lanes         those that cannot meet when all are on threads
threads       those that are left when wrappers that ran on threads are gone
callers       the operators before which a thread's call holds up another thread's, on two wrappers or one
idle          threads that wake often while a wrapper with the default dispatch is idle
choices       of three trials, those in which the default dispatch chooses the slower way to call its replicas

Two models, whose lanes sleep, have one faster way each, whatever the machine does meanwhile:

    lanes that sleep            10 ms each, with or without others      at once they take a quarter of the time
    lanes that hinder others    1 ms alone, 15 ms beside another        one after the other they take a third

A third trial gets fixed times, in which lanes at once take 3 % less: the wrapper changes for a gain above 5 % only.
"""

import builtins
import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.cases.variants import VariantId, VariantName
from dpbench.measure.counted.more_steps import count_more_steps
from dpbench.measure.counted.with_torch import WITH_TORCH
from dpbench.measure.pinned import autotuner, pinned
from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.sample import settle
from dpbench.records.count_record import Phase
from dpbench.variants.registry import variant_of

_LANES, _ITEMS, _FEATURES = 4, 8, 16
_TURNS_BEFORE, _FORWARDS = 2, 1100
_WRAPPERS = 3
_WRAPPER, _LAYERS, _FEW_FEATURES = "dpbench.parallel", 4, 8
_READ_FORWARDS = 3
_SLEEP_S = 0.010
_SMALL_GAIN = {"sequence": 1.0, "threads": 0.97}
_ALONE_S, _HINDERED_S = 0.001, 0.015
_SETTLED_AFTER, _IDLE_S, _OFTEN = 10, 0.1, 5
"""Forwards after which `auto` has no trials left; seconds; wakes in that time that are often."""
_PATIENCE_S, _LITTLE_S = 5.0, 0.1
"""Waits that only faulty code needs. After two, the short one: a lock around each operator would take minutes."""


def _wrapper(dispatch: str, lanes: int = _LANES, model: nn.Module | None = None) -> Any:
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(_FEATURES, _FEATURES), nn.BatchNorm1d(_FEATURES), nn.Dropout(0.5))
    variant = VariantId(VariantName.TUNED).with_parameters(dispatch=dispatch)
    return variant_of(variant).wrap(model, [torch.device("cpu")] * lanes)


def _batch() -> Tensor:
    return torch.ones(_ITEMS, _FEATURES)


def _long(_: Sequence[str]) -> dict[str, int]:
    wrapper = _wrapper("sequence", 2)
    with torch.no_grad():
        more = count_more_steps(lambda: wrapper(_batch()), _FORWARDS)
    return more.model_dump()


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


def _left_threads(_: Sequence[str]) -> dict[str, int]:
    before = threading.active_count()
    for _ in range(_WRAPPERS):
        _wrapper("threads", model=_Meeting(_LANES))(_batch())
        gc.collect()
    until_s = time.monotonic() + _PATIENCE_S
    while threading.active_count() > before and time.monotonic() < until_s:
        time.sleep(0.001)
    return {"left": max(0, threading.active_count() - before)}


def _lanes(_: Sequence[str]) -> dict[str, int]:
    model = _Meeting(_LANES)
    for _wrap in range(_WRAPPERS):
        _wrapper("threads", model=model)(_batch())
    return {"apart": len(model.apart)}


def _idle(_: Sequence[str]) -> dict[str, int]:
    tasks, wrapper = Path("/proc/self/task"), _wrapper("auto")
    before = set(tasks.iterdir())
    with pinned("sequence"):
        for _ in range(_SETTLED_AFTER):
            wrapper(_batch())
    threads = set(tasks.iterdir()) - before
    wakes = {thread: _wakes(thread) for thread in threads}
    time.sleep(_IDLE_S)
    return {"waking_threads": sum(_wakes(thread) - wakes[thread] >= _OFTEN for thread in threads)}


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


def _callers(_: Sequence[str]) -> dict[str, int]:
    one, other = _wrapper("sequence", 2), _wrapper("sequence", 2)
    for _ in range(_TURNS_BEFORE):
        one(_batch()), other(_batch())
    with _Pause(-1, int) as alone:
        one(_batch())
    return {
        f"apart_on_{name}": _apart(one, second, alone.seen)
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


class _Inside:
    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self.overlapped = False

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            self.overlapped |= self._inside > 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1

    @property
    def are_crowded(self) -> bool:
        return self._inside > 1


class _Sleeper(nn.Module):
    def __init__(self, *, is_hindered: bool) -> None:
        super().__init__()
        self.lanes, self.is_hindered = _Inside(), is_hindered

    def forward(self, x: Tensor) -> Tensor:
        self.lanes.enter()
        time.sleep(_ALONE_S if self.is_hindered else _SLEEP_S)
        if self.is_hindered and self.lanes.are_crowded:
            time.sleep(_HINDERED_S)
        self.lanes.leave()
        return x


def _choices(_: Sequence[str]) -> dict[str, int]:
    wrong = sum(_runs_at_once(_Sleeper(is_hindered=is_hindered)) is is_hindered for is_hindered in (False, True))
    return {"slower": wrong + _leaves_sequence_for_a_small_gain()}


def _leaves_sequence_for_a_small_gain() -> bool:
    kind = autotuner()
    if kind is None:
        return False
    tuner = kind(list(_SMALL_GAIN))
    while tuner.chosen is None:
        choice = tuner.next_choice()
        tuner.add(choice, _SMALL_GAIN[choice])
    return bool(tuner.chosen != "sequence")


def _runs_at_once(model: _Sleeper) -> bool:
    wrapper, x = import_module(_WRAPPER).DataParallel(model, ["cpu"] * _LANES), torch.zeros(_LANES, 1)
    settle(lambda: wrapper(x), lambda: getattr(wrapper, "trials_left", None))
    model.lanes.overlapped = False
    for _ in range(_READ_FORWARDS):
        wrapper(x)
    return model.lanes.overlapped


def _start(_: Sequence[str]) -> dict[str, int]:
    modules = len(_imported())
    wrap = import_module(_WRAPPER).DataParallel
    layers = [
        nn.Sequential(nn.Linear(_FEW_FEATURES, _FEW_FEATURES), nn.BatchNorm1d(_FEW_FEATURES)) for _ in range(_LAYERS)
    ]
    model, batch = nn.Sequential(*layers), torch.ones(2 * _LANES, _FEW_FEATURES)
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        wrapper = wrap(model, ["cpu"] * _LANES)
        calls.enter(Phase.BACKWARD)
        wrapper(batch)
    names = ("construction_calls", "first_forward_calls")
    return {"modules": modules, **dict(zip(names, calls.by_phase().values(), strict=True))}


def _imported() -> set[str]:
    """Also modules that this process has already."""
    named, before, real = set[str](), set(sys.modules), builtins.__import__

    def note(name: str, names: Any = None, *others: Any) -> Any:
        if names and str(names.get("__name__")).startswith(_WRAPPER):
            named.add(name)
        return real(name, names, *others)

    builtins.__import__ = note  # type: ignore[assignment]  # it passes all arguments on
    try:
        import_module(_WRAPPER)
    finally:
        builtins.__import__ = real
    modules = (named | (sys.modules.keys() - before)) - WITH_TORCH
    return {name for name in modules if not name.startswith(_WRAPPER)}


USES: Mapping[str, Callable[[Sequence[str]], dict[str, int]]] = {
    "once_start": _start,
    "long": _long,
    "lanes": _lanes,
    "threads": _left_threads,
    "callers": _callers,
    "idle": _idle,
    "choices": _choices,
}
"""The start comes first: the others import the wrapper."""
