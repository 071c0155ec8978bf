"""The child that lists and examines benchmarks of asv and pytest: BorrowedTasks on stdin, BorrowedAnswers out.

    python -m dpbench.processes.child.borrowed --record-fd N --parent-pid P

parent ──launches──> this process: imports asv_runner or pytest, and no code of the project
                        ├──forks──> one request, with the packages of its side
                        └──forks──> the next one

A gate's round forks its sides with `serve_borrowed`. They hold a sample of the benchmark as their step.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from dpbench.measure.borrowed.lent import (
    BorrowedError,
    Lending,
    Lent,
    Sample,
    SkippedError,
    Use,
    import_from,
    use_one_thread,
)
from dpbench.processes.child.forks import Fork, Serve, SideError, forked
from dpbench.processes.child.process import answer, loading, shifted_heap
from dpbench.processes.child.serving import WARMUP_S, failed, pin, sender, take_blocks
from dpbench.processes.messages import (
    BorrowedAnswer,
    BorrowedAnswers,
    BorrowedJob,
    BorrowedRequest,
    BorrowedTask,
    BorrowedTasks,
    Side,
    SideName,
)
from dpbench.processes.process_tree import die_with_parent
from dpbench.records.borrowed import Examined, Kind, Suite
from dpbench.records.record import Outcome

_PRELOADED = {Suite.ASV: ("asv_runner.discovery", "asv.util"), Suite.PYTEST: ("pytest",)}
_NEEDED = {Suite.ASV: "asv", Suite.PYTEST: "pytest_benchmark"}


def respond(text: str) -> BorrowedAnswers:
    request = BorrowedTasks.model_validate_json(text)
    preload({each.suite for each in request.requests})
    return BorrowedAnswers(answers=tuple(_answered(each, request.timeout_s) for each in request.requests))


def preload(suites: set[Suite]) -> None:
    """Import the frameworks, so that forks need not. A missing one is reported by the forks."""
    with loading(), suppress(ImportError):
        for suite in suites:
            for module in _PRELOADED[suite]:
                import_module(module)


@contextmanager
def in_scratch(side: Side, name: SideName, serve: Serve, timeout_s: float) -> Iterator[Fork]:
    """Run a side in a fork whose current folder is new, and is removed at the end."""
    with TemporaryDirectory(dir=side.scratch, ignore_cleanup_errors=True) as folder:

        def moved(pipe: Connection, parent_pid: int) -> None:
            os.chdir(folder)
            serve(pipe, parent_pid)

        with forked(name, moved, timeout_s) as fork:
            yield fork


def serve_borrowed(job: BorrowedJob, side: Side, pipe: Connection, parent_pid: int) -> None:
    """Be a side of a gate's round. Its first message is the seconds of a step with the set-up of each sample."""
    die_with_parent(parent_pid)
    ballast = shifted_heap()  # noqa: F841  # held until the end
    send = sender(pipe)

    def use(take: Lent) -> None:
        end_s = monotonic() + WARMUP_S
        while monotonic() < end_s:
            take()
        pin(job.cores)
        gc.collect()
        start_s = monotonic()
        take()
        send({"steps_s": [monotonic() - start_s]})
        take_blocks(pipe, lambda: take().call_s)

    try:
        _use_side(side, one_thread=len(job.cores) == 1)
        _lend(job.suite, side, job.benchmark, Lending(job.number, Path(side.scratch)), use)
    except BorrowedError as error:
        send({"outcome": Outcome.SKIPPED, "reason": str(error)})
    except BaseException as error:  # pytest's own outcomes are no `Exception`
        send(failed(Outcome.CRASHED, error))


def _answered(request: BorrowedRequest, timeout_s: float) -> BorrowedAnswer:
    try:
        with in_scratch(request.side, SideName.BASE, partial(_serve, request), timeout_s) as fork:
            return BorrowedAnswer.model_validate(fork.message())
    except SideError as error:
        return BorrowedAnswer(reason=error.reason)


def _serve(request: BorrowedRequest, pipe: Connection, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    try:
        _use_side(request.side, one_thread=True)
        found = _done(request)
    except BorrowedError as error:
        found = BorrowedAnswer(reason=" ".join(str(error).split()), is_skipped=isinstance(error, SkippedError))
    except BaseException as error:
        found = BorrowedAnswer(reason=str(failed(Outcome.CRASHED, error)["reason"]))
    pipe.send_bytes(found.model_dump_json().encode())


def _use_side(side: Side, *, one_thread: bool) -> None:
    os.environ.update(side.environment)
    if one_thread:
        use_one_thread()
    import_from(side.paths)


def _done(request: BorrowedRequest) -> BorrowedAnswer:
    suite, side, name = request.suite, request.side, request.name
    commit, caches = Path(side.folder), Path(side.scratch)
    _require(suite)
    if request.task is BorrowedTask.LIST:
        if suite is Suite.ASV:
            from dpbench.measure.borrowed.asv_suite import list_asv

            return BorrowedAnswer(listing=list_asv(commit))
        from dpbench.measure.borrowed.pytest_suite import list_pytest

        return BorrowedAnswer(listing=list_pytest(commit, name))
    if request.task is BorrowedTask.CALIBRATE:
        samples: list[Sample] = []
        _lend(suite, side, name, Lending(None, caches), lambda take: samples.append(take()))
        return BorrowedAnswer(number=samples[0].calls)
    if request.kind is Kind.VALUE:
        from dpbench.measure.borrowed.asv_suite import value_asv

        value, unit = value_asv(commit, name, Lending(None, caches))
        return BorrowedAnswer(examined=Examined(value=value, unit=unit))
    from dpbench.measure.borrowed.examine import examine

    lend = partial(_lend, suite, side, name)
    return BorrowedAnswer(examined=examine(lend, commit, caches, details=request.details))


def _lend(suite: Suite, side: Side, name: str, lending: Lending, use: Use) -> None:
    _require(suite)
    if suite is Suite.ASV:
        from dpbench.measure.borrowed.asv_suite import lend_asv as lend
    else:
        from dpbench.measure.borrowed.pytest_suite import lend_pytest as lend
    lend(Path(side.folder), name, lending, use)


def _require(suite: Suite) -> None:
    if find_spec(_NEEDED[suite]) is None:
        raise BorrowedError(f"{_NEEDED[suite]} is not installed; allowed: pip install 'torch-dpbench[suites]'")


if __name__ == "__main__":
    answer(respond)
