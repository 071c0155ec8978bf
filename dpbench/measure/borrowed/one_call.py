"""One call of a borrowed benchmark: whether it starts processes, and its exact counters.

python_calls                     always; of a process' first call, if the benchmark measures that, nothing else
host_operators, host_bytes       if torch is imported
python_peak_bytes                otherwise: the most memory that the call's own objects take
"""

import _posixsubprocess
import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from dpbench.measure.borrowed.lent import BorrowedError, Lent, Probe
from dpbench.measure.counted.details import Sites
from dpbench.measure.python_calls import PythonCalls
from dpbench.records.count_record import Counts, Detail, Phase, PhaseCounts

_STARTS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
    (subprocess.Popen, "__init__"),
    (_posixsubprocess, "fork_exec"),  # multiprocessing calls it by this name
)
_REFUSED = "starts a process, which a gate neither pins nor times"


def refuse_processes(take: Lent, probe: Probe) -> None:
    probe.around = _no_processes
    take(1)
    if psutil.Process().children():
        raise BorrowedError(f"its set-up {_REFUSED}")


def count_call(
    take: Lent, probe: Probe, commit: Path, sites: Sites | None = None, *, first: bool
) -> tuple[Counts, tuple[Detail, ...]]:
    """The counters of a call or its value, and their lines of code in `commit`, if `sites` take them.

    If the process' `first` call is what the benchmark measures, only its Python calls are counted: there is no second.
    """
    if not first:
        sample, _ = take(1), take(1)
        if not sample.calls:
            return Counts(phases={}, value=sample.call_s, unit=sample.unit), ()
    calls = PythonCalls(sites.calls if sites else None)
    probe.around = partial(_Counting, calls)
    take(1)
    counters = {"python_calls": calls.by_phase()[Phase.FORWARD]}
    if not first:
        counters |= _memory_or_operators(take, probe)
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(**counters)})
    with chdir(commit):
        return counts, sites.details() if sites else ()


def _memory_or_operators(take: Lent, probe: Probe) -> dict[str, int]:
    if "torch" not in sys.modules:
        peak = _PeakMemory()
        probe.around = partial(_Counting, peak)
        take(1)
        return {"python_peak_bytes": peak.most_bytes}
    from dpbench.measure.counted.host_work import HostWork

    work = HostWork()
    probe.around = partial(_Counting, work)
    take(1)
    return {"host_operators": work.operators[Phase.FORWARD], "host_bytes": work.written_bytes[Phase.FORWARD]}


class _PeakMemory:
    most_bytes = 0

    def __enter__(self) -> None:
        tracemalloc.start()

    def enter(self, _: Phase) -> None:
        tracemalloc.reset_peak()

    def __exit__(self, *_: object) -> None:
        self.most_bytes = max(self.most_bytes, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


@contextmanager
def _no_processes() -> Iterator[None]:
    refuse = mock.Mock(side_effect=BorrowedError(f"its call {_REFUSED}"))
    with ExitStack() as stack:
        for owner, name in _STARTS:
            stack.enter_context(mock.patch.object(owner, name, refuse))
        yield
    if refuse.called:  # the call may have caught the error
        raise refuse.side_effect


class _Counting:
    """Garbage collection is off inside the block: it runs the finalizers of other calls' objects."""

    def __init__(self, counter: Any) -> None:
        self._counter = counter

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()
        self._counter.__enter__()
        self._counter.enter(Phase.FORWARD)

    def __exit__(self, *error: Any) -> None:
        self._counter.__exit__(*error)
        if self._was_enabled:
            gc.enable()
