"""Make this worker fail, leave or wait for a new one, as planned, once in a run."""

import os
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from dpbench.elastic.elastic_record import EventKind, FaultKind, PlannedFault
from dpbench.elastic.run_files import EventLog, fault_file

_SPARE_BYTES = 1 << 26
_PAGE_BYTES = resource.getpagesize()


class Injector:
    def __init__(self, faults: Sequence[PlannedFault], rank: int, folder: Path, log: EventLog) -> None:
        self._faults = {fault.step: fault for fault in faults if fault.rank == rank}
        self._folder, self._log = folder, log

    def before(self, step: int) -> None:
        """The fault of this step happens once."""
        fault = self._faults.get(step)
        if fault is None or fault_file(self._folder, fault).exists():
            return
        self._log.mark(EventKind.FAULT, step=step, detail=fault.kind)
        fault_file(self._folder, fault).touch(exist_ok=False)  # a new agent waits for it, so after the time stamp
        _FAIL[fault.kind]()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _run_out_of_memory() -> None:
    """A RuntimeError of torch ends the worker."""
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    limit_bytes = used_bytes + _SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    torch.empty(limit_bytes, dtype=torch.uint8)
    raise AssertionError(f"{limit_bytes} bytes were allocated above a limit of {limit_bytes}")


def _leave() -> None:
    """A scheduler that takes a machine away ends the agent so."""
    os.kill(os.getppid(), signal.SIGTERM)
    _hang()


def _hang() -> None:
    while True:
        time.sleep(3600)


_FAIL = {
    FaultKind.KILL: _kill,
    FaultKind.OOM: _run_out_of_memory,
    FaultKind.HANG: _hang,
    FaultKind.LEAVE: _leave,
    FaultKind.JOIN: _hang,
}
