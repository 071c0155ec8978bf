"""A borrowed benchmark in a fork: tried, counted, or as a side of a gate's round.

coordinator (lockstep_child.py)                       side
  │ <──── {"steps_s": [0.006], "number": 40} ───────    ready; a step is a sample of `number` calls with its set-up
  │ ───── {"steps": 2, "number": 40} ───────────────>   base's number, for all sides
  │ <──── {"steps_s": [0.0001, 0.0001]} ────────────    seconds of one call

A side whose benchmark measures a process' first call is ready with number 0, before any call; see `FirstCallError`.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from time import monotonic

from dpbench.cases.names import IMPORT_FOLDERS, borrowed
from dpbench.engine.child import loading, shifted_heap
from dpbench.engine.messages import CountJob, LockstepJob, Side
from dpbench.engine.wrapper_of import built_of, scratch_of
from dpbench.jobs.forks import WARMUP_S, failed, pin, sender, take_blocks
from dpbench.measure.borrowed.lent import BorrowedError, Lent, Probe, Use, import_from
from dpbench.measure.environment import host_environment
from dpbench.records.count_record import CountRecord, Counts, Detail
from dpbench.records.record import Outcome

_PRELOADED = {"asv": ("asv_runner.discovery", "asv.util"), "pytest": ("pytest",)}
_NEEDED = {"asv": "asv", "pytest": "pytest_benchmark"}


def preload(suites: set[str]) -> None:
    """Forks report a missing framework."""
    with loading(), suppress(ImportError):
        for module in (module for suite in suites for module in _PRELOADED[suite]):
            import_module(module)


@contextmanager
def commit_imported(folder: Path, suite: str, *, one_thread: bool = True) -> Iterator[None]:
    """Import the commit's packages from its folder within the block, in a new current folder."""
    if find_spec(_NEEDED[suite]) is None:
        raise BorrowedError(f"{_NEEDED[suite]} is not installed; allowed: pip install 'torch-dpbench[suites]'")
    built = built_of(folder)
    folders = [built] if built.is_dir() else [folder / place for place in IMPORT_FOLDERS if (folder / place).is_dir()]
    if any((path / "dpbench").exists() for path in folders):
        raise BorrowedError("the commit holds dpbench, which this process has imported; its benchmarks need a workload")
    import_from([str(path) for path in folders], one_thread=one_thread)
    with TemporaryDirectory(ignore_cleanup_errors=True) as new, chdir(new):
        yield


def lend(workload: str, folder: Path, use: Use, probe: Probe | None = None) -> None:
    """Call it inside `commit_imported`; raises BorrowedError."""
    suite, name = borrowed(workload) or ("", workload)
    if suite == "asv":
        from dpbench.measure.borrowed.asv_suite import lend_asv

        lend_asv(folder, name, scratch_of(folder), use, probe)
    else:
        from dpbench.measure.borrowed.pytest_suite import lend_pytest

        lend_pytest(folder, name, use, probe)


def serve_borrowed(job: LockstepJob, side: Side, pipe: socket) -> None:
    os.environ.update(side.environment)
    ballast = shifted_heap()  # noqa: F841  # held until the end
    send = sender(pipe)

    def use(take: Lent, first: bool) -> None:
        if first:
            pin(job.cores)
            send({"steps_s": [job.block_s], "number": 0})
            take_blocks(pipe, lambda _: take(1).call_s)
            return
        number = take().calls
        end_s = monotonic() + WARMUP_S
        while monotonic() < end_s:
            take(number)
        pin(job.cores)
        gc.collect()
        start_s = monotonic()
        take(number)
        send({"steps_s": [monotonic() - start_s], "number": number})
        take_blocks(pipe, lambda number: take(number).call_s)

    suite, _ = borrowed(job.case.workload) or ("", "")
    try:
        with commit_imported(Path(side.folder), suite, one_thread=len(job.cores) == 1):
            lend(job.case.workload, Path(side.folder), use)
    except BaseException as error:  # pytest's own outcomes are no `Exception`
        with suppress(OSError):  # the coordinator has closed the pipe
            send(failed(Outcome.CRASHED, error))


def count_borrowed(job: CountJob) -> CountRecord:
    from dpbench.measure.borrowed.one_call import count_call
    from dpbench.measure.counted.details import Sites

    folder, probe = Path(job.folder or "."), Probe()
    counted: list[tuple[Counts, tuple[Detail, ...]]] = []
    suite, _ = borrowed(job.case.workload) or ("", "")

    def use(take: Lent, first: bool) -> None:
        sites = Sites(job.changed_files()) if job.details else None
        counted.append(count_call(take, probe, folder, sites, first=first))

    try:
        with commit_imported(folder, suite):
            lend(job.case.workload, folder, use, probe)
    except BaseException as error:
        reason = str(failed(Outcome.SKIPPED, error)["reason"])
        return CountRecord(case=job.case, outcome=Outcome.SKIPPED, reason=reason)
    counts, details = counted[0]
    environment = host_environment()
    return CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=environment, details=details)
