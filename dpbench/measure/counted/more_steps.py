"""What many steps do that one does not show: work in few of them, work that grows with their number, kept memory.

For work in few of them, all clocks move on by ten seconds before each.
"""

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from math import floor
from types import BuiltinFunctionType
from typing import Any
from unittest import mock

from dpbench.measure.counted.details import Sites
from dpbench.measure.python_calls import PythonCalls, PythonLines
from dpbench.records.count_record import Kept, MoreSteps, Phase

_LEAP_S = 10
_CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")
_LINES_OF = 6
"""Steps at both ends whose lines are counted, which takes ten times as long as counting calls."""


def count_more_steps(step: Callable[[], object], steps: int, sites: Sites | None = None) -> MoreSteps:
    """Garbage collection must be off, so that only collections that the code asks for run."""
    assert not gc.isenabled()
    collections = list[str]()

    def note(moment: str, _: dict[str, Any]) -> None:
        collections.append(moment)

    noted = sites.named("more_steps") if sites else None
    first_lines = _lines(step)
    gc.callbacks.append(note)
    try:
        one = _calls(step, 1)
        with leaping_clocks() as leap:
            seldom_calls = max(0, _calls(lambda: (leap(), step()), steps, noted) - steps * one)
    finally:
        gc.callbacks.remove(note)
    later_lines = max(0, _lines(step, noted) - first_lines)
    return MoreSteps(seldom_calls=seldom_calls, collections=collections.count("start"), later_lines=later_lines)


@contextmanager
def leaping_clocks() -> Iterator[Callable[[], None]]:
    """Yield a function that moves the clocks of `time` on, also those that modules of the wrapper have imported."""
    leaps = 0

    def leap() -> None:
        nonlocal leaps
        leaps += 1

    def later(clock: Callable[[], float], second: int) -> Callable[[], float]:
        return lambda: clock() + leaps * _LEAP_S * second

    clocks = {getattr(time, name): later(getattr(time, name), 10**9 if "_ns" in name else 1) for name in _CLOCKS}
    wrapper = [module for name, module in sys.modules.items() if name.startswith("dpbench.parallel")]
    with ExitStack() as stack:
        for module in (time, *wrapper):
            for name, value in list(vars(module).items()):
                if isinstance(value, BuiltinFunctionType) and value in clocks:
                    stack.enter_context(mock.patch.object(module, name, clocks[value]))
        yield leap


def _calls(step: Callable[[], object], steps: int, sites: Sites | None = None) -> int:
    with PythonCalls(sites.calls if sites else None) as calls:
        calls.enter(Phase.FORWARD)
        for _ in range(steps):
            step()
    return calls.by_phase()[Phase.FORWARD]


def _lines(step: Callable[[], object], sites: Sites | None = None) -> int:
    with PythonLines(sites.lines if sites else None) as lines:
        lines.enter(Phase.FORWARD)
        for _ in range(_LINES_OF):
            step()
    return lines.by_phase()[Phase.FORWARD]


_READINGS = 5
_OBJECT_BLOCKS = 4
"""Caches look like fewer kept blocks: ``mlp/tiny`` 1.5 a step after 60 steps, 0.7 after 240."""
_TENSOR_BYTES = 64
"""The least memory of a CPU tensor, by torch's alignment."""
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def kept_per_step(step: Callable[[], object], steps: int) -> Kept | None:
    """None without glibc's ``mallinfo2``; the least increase between two readings counts, because caches fill."""
    in_use = _malloc_reader()
    if in_use is None:
        return None
    between = max(1, steps // _READINGS)
    blocks, malloc_bytes = list[int](), list[int]()
    for _ in range(_READINGS):
        for _ in range(between):
            step()
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        malloc_bytes.append(in_use())
    return Kept(
        python_blocks=whole_units(_least_increase(blocks) / between, _OBJECT_BLOCKS),
        malloc_bytes=whole_units(_least_increase(malloc_bytes) / between, _TENSOR_BYTES),
    )


def _least_increase(readings: Sequence[int]) -> int:
    return min(after - before for before, after in pairwise(readings))


def whole_units(per_step: float, unit: int) -> int:
    """Round down to a multiple of `unit`, at least 0; a missing tenth of a unit may be other memory's release."""
    return max(0, unit * floor(per_step / unit + 0.1))


def _malloc_reader() -> Callable[[], int] | None:
    try:
        read = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    read.restype = _Mallinfo2

    def in_use() -> int:
        info = read()
        return int(info.uordblks + info.hblkhd)

    return in_use
