"""The child that counts what a script's ranks send: ScriptJobs on stdin, ScriptRecords on the record pipe.

    python -m dpbench.jobs.scripts_child --record-fd N --parent-pid P

parent ──launches──> this process: imports torch once
                        ├──forks──> the store, as torchrun's agent has one       for each script, one after the other
                        ├──forks──> rank 0: the script under measure/ranks/issues.py
                        └──forks──> rank 1

A rank that has taken its steps waits to be killed: its end might fail another's last collective.
"""

import faulthandler
import gc
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

from pydantic import ValidationError

from dpbench.cases.names import IMPORT_FOLDERS
from dpbench.engine.child import answer, loading
from dpbench.engine.fence import enclose
from dpbench.engine.fork import Forked, fork
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import RECORD_BYTES
from dpbench.engine.process_tree import nothing_left_behind
from dpbench.jobs.ranks import LOOPBACK
from dpbench.records.script_record import LEAST_STEPS, RankIssues, ScriptJob, ScriptJobs, ScriptRecord, ScriptRecords
from dpbench.text.outside import one_line
from dpbench.text.validated import Frozen

# Without this, each rank would import the others when a script first uses them.
_PRELOADED = ("dpbench.measure.ranks.issues", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor")
_LINE = re.compile(r'^ +File "(.+)", line (\d+) in ', re.MULTILINE)
_LOST = "onnection"
"""In each of gloo's messages about a rank that is gone."""
_ASKED_S = 1.0
_RANDOM_PORT = 0


def respond(request: ScriptJobs) -> ScriptRecords:
    with loading():
        for module in _PRELOADED:
            import_module(module)
    gc.freeze()
    return ScriptRecords(records=tuple(_count(job, request.timeout_s) for job in request.jobs))


class _Sent(Frozen):
    issued: RankIssues | None = None
    reason: str = "ended without a record"


class _Rank(NamedTuple):
    fork: Forked
    pipe: Connection


def _count(job: ScriptJob, timeout_s: float) -> ScriptRecord:
    with nothing_left_behind():
        port = _start_store(job.ranks)
        ranks = [_start(job, rank, port) for rank in range(job.ranks)]
        try:
            return _records_of(job, ranks, time.monotonic() + timeout_s, timeout_s)
        finally:
            for rank in ranks:
                rank.fork.close()
                rank.pipe.close()


def _records_of(job: ScriptJob, ranks: Sequence[_Rank], deadline_s: float, timeout_s: float) -> ScriptRecord:
    issued: dict[int, RankIssues] = {}
    while len(issued) < len(ranks):
        waiting = {number: rank for number, rank in enumerate(ranks) if number not in issued}
        ready = wait(
            [x for rank in waiting.values() for x in (rank.pipe, rank.fork.ended)], deadline_s - time.monotonic()
        )
        if not ready:
            lines = [f"rank {number} {_where(rank)}" for number, rank in waiting.items()]
            return ScriptRecord(reason=f"not done after {timeout_s:g} s: {', '.join(lines)}{_over(issued)}")
        failed = {}
        for number, rank in waiting.items():
            if rank.pipe in ready or rank.fork.ended in ready:
                sent = _answer(rank)
                if isinstance(sent, RankIssues):
                    issued[number] = sent
                else:
                    failed[number] = sent
        if failed:
            number, reason = _cause(failed, {number: waiting[number] for number in waiting.keys() - issued.keys()})
            return ScriptRecord(reason=f"rank {number}: {reason}{_over(issued)}")
    for number in range(job.ranks):
        if (steps := len(issued[number].steps)) < LEAST_STEPS:
            return ScriptRecord(
                reason=f"rank {number} ended after {steps} steps of an optimizer; allowed: {LEAST_STEPS} or more, in "
                "the process that runs the script"
            )
    return ScriptRecord(ranks=tuple(issued[number] for number in range(job.ranks)))


def _cause(failed: dict[int, str], ranks: dict[int, _Rank]) -> tuple[int, str]:
    """The rank that failed first: the others fail because its connections are closed, which may show earlier."""
    if all(_LOST in reason for reason in failed.values()):
        ended = wait([rank.fork.ended for number, rank in ranks.items() if number not in failed], _ASKED_S)
        later = {number: _answer(rank) for number, rank in ranks.items() if rank.fork.ended in ended}
        failed |= {number: sent for number, sent in later.items() if isinstance(sent, str)}
    number = min(failed, key=lambda number: (_LOST in failed[number], number))
    return number, failed[number]


def _over(issued: dict[int, RankIssues]) -> str:
    return "".join(f"; rank {number} had ended after {len(rank.steps)} steps" for number, rank in issued.items())


def _answer(rank: _Rank) -> RankIssues | str:
    """A script could send anything, so nothing is unpickled."""
    try:
        sent = _Sent.model_validate_json(rank.pipe.recv_bytes(RECORD_BYTES) if rank.pipe.poll() else b"")
    except (OSError, EOFError, ValidationError):
        return _end(rank)
    return sent.issued or sent.reason


def _end(rank: _Rank) -> str:
    end = rank.fork.end()
    return ": ".join([ending(end), *(last_lines(end.tail)[-1:] if end.returncode >= 0 else [])])


def _where(rank: _Rank) -> str:
    from dpbench.measure.ranks.issues import is_of_user

    before = rank.fork.output_bytes()
    signal.pidfd_send_signal(rank.fork.ended, signal.SIGUSR1)
    time.sleep(_ASKED_S)
    lines = _LINE.findall(rank.fork.output(before).decode(errors="replace"))
    return next(
        (f"is at {Path(file).name}, line {line}" for file, line in lines if is_of_user(file)), "does not answer"
    )


def _start_store(ranks: int) -> int:
    """Return the port of a store in a fork: this process gets no thread of it."""
    ours, theirs = Pipe()
    fork(partial(_serve, theirs, ranks))
    theirs.close()
    with ours:
        return int(ours.recv())


def _serve(pipe: Connection, ranks: int) -> None:
    from torch._C._distributed_c10d import TCPStore

    store = TCPStore(LOOPBACK, _RANDOM_PORT, ranks, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    signal.pause()


def _start(job: ScriptJob, rank: int, port: int) -> _Rank:
    ours, theirs = Pipe()
    started = Forked.start(partial(_run, job, rank, port, theirs))
    theirs.close()
    return _Rank(started, ours)


def _run(job: ScriptJob, rank: int, port: int, pipe: Connection, _: int) -> None:
    enclose(pipe.fileno())
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=False)
    os.environ.update(_environment(job, rank, port))
    if job.folder is not None:
        os.chdir(job.folder)
    script = os.path.abspath(job.script)
    sys.argv = [job.script, *job.args]
    sys.path[:0] = [os.path.dirname(script), *(os.path.abspath(folder) for folder in IMPORT_FOLDERS)]
    try:
        sent = _Sent(issued=_issued(script, job.steps, partial(_finish, pipe)))
    except BaseException as error:
        sent = _Sent(reason=_why(error))
    pipe.send_bytes(sent.model_dump_json().encode())


def _finish(pipe: Connection, issued: RankIssues) -> NoReturn:
    pipe.send_bytes(_Sent(issued=issued).model_dump_json().encode())
    while True:
        signal.pause()


def _issued(script: str, steps: int, finish: Callable[[RankIssues], NoReturn]) -> RankIssues:
    from dpbench.measure.ranks.issues import Issues

    main = sys.modules["__main__"] = ModuleType("__main__")  # runpy would replace sys.argv[0]
    main.__file__ = script
    issues = Issues(steps, lambda: finish(issues.issued()))
    with issues:
        try:
            exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)  # noqa: S102  # the user names it
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        return issues.issued()


def _why(error: BaseException) -> str:
    from dpbench.measure.ranks.issues import is_of_user

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_of_user(frame.filename)]
    where = f" at {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    words = one_line(str(error)) if not isinstance(error, SystemExit) else f"exit status {error.code}"
    return f"{type(error).__name__}: {words[:300]}{where}"


def _environment(job: ScriptJob, rank: int, port: int) -> dict[str, str]:
    """What torchrun sets."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(job.ranks),
        "LOCAL_WORLD_SIZE": str(job.ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "dpbench",
        "GLOO_SOCKET_IFNAME": "lo",
    }


if __name__ == "__main__":
    answer(respond)
