"""One call of a borrowed benchmark: whether it starts processes, and its exact counters.

    call.python_calls                         always
    call.host_operators, call.host_bytes      if the call has imported torch
    call.python_peak_bytes                    otherwise: the most memory that the call's own objects take

The third call and later ones are counted, because the first two fill caches.
"""

import _posixsubprocess
import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from dpbench.measure.borrowed.lent import BorrowedError, Lending, Probe, Use
from dpbench.measure.counted.details import PythonCallSites, limited
from dpbench.measure.python_calls import PythonCalls
from dpbench.records.borrowed import Examined
from dpbench.records.counts import Phase
from dpbench.records.details import Detail

CALLS = "call.python_calls"

_STARTS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
    (subprocess.Popen, "__init__"),
    (_posixsubprocess, "fork_exec"),  # multiprocessing calls it by this name
)


def examine(lend: Callable[[Lending, Use], None], commit: Path, caches: Path, *, details: bool) -> Examined:
    """Call the benchmark several times, and return the counters of a call, with details that name files of `commit`.

    Raises BorrowedError if a call starts a process.
    """
    probe = Probe()
    found: list[Examined] = []

    def use(take: Callable[[], object]) -> None:
        probe.around = _no_processes
        take()
        probe.around = _no_garbage_collection
        take()
        calls = PythonCallSites() if details else PythonCalls()
        probe.around = partial(_Counting, calls)
        take()
        counters = {CALLS: calls.by_phase()[Phase.FORWARD]} | _work(take, probe)
        with chdir(commit):
            lines = limited(_of_call(calls.details())) if isinstance(calls, PythonCallSites) else ()
        found.append(Examined(counters=counters, details=lines, is_torch="torch" in sys.modules))

    lend(Lending(1, caches, probe=probe), use)
    return found[0]


@contextmanager
def _no_processes() -> Iterator[None]:
    """Raise BorrowedError at the end if the block starts a process, or if one that the set-up started still runs."""
    started: list[str] = []

    def refuse(*_: Any, **__: Any) -> None:
        started.append("its call starts a process, which a gate neither pins nor times")
        raise BorrowedError(started[0])

    with ExitStack() as stack:
        for owner, name in _STARTS:
            stack.enter_context(mock.patch.object(owner, name, refuse))
        yield
    if psutil.Process().children():
        started.append("its set-up starts a process, which a gate neither pins nor times")
    if started:
        raise BorrowedError(started[0])


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection runs the finalizers of objects that other calls made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Counting:
    """Counts inside the block. A generator's frames would be counted too."""

    def __init__(self, counter: Any) -> None:
        self._counter, self._paused = counter, _no_garbage_collection()

    def __enter__(self) -> None:
        self._paused.__enter__()
        self._counter.__enter__()
        self._counter.enter(Phase.FORWARD)

    def __exit__(self, *error: Any) -> None:
        self._counter.__exit__(*error)
        self._paused.__exit__(*error)


def _work(take: Callable[[], object], probe: Probe) -> dict[str, int]:
    if "torch" not in sys.modules:
        peaks: list[int] = []
        probe.around = partial(_tracing, peaks)
        take()
        return {"call.python_peak_bytes": max(peaks)}
    from dpbench.measure.counted.host_work import HostWork

    work = HostWork()
    probe.around = partial(_Counting, work)
    take()
    operators, written = work.operators[Phase.FORWARD], work.written_bytes[Phase.FORWARD]
    return {"call.host_operators": operators, "call.host_bytes": written}


@contextmanager
def _tracing(peaks: list[int]) -> Iterator[None]:
    with _no_garbage_collection():
        tracemalloc.start()
        try:
            yield
        finally:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()


def _of_call(details: Iterator[Detail]) -> Iterator[Detail]:
    for detail in details:
        yield detail.model_copy(update={"counter": CALLS})
