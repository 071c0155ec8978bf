"""The parent's end of a round: one process, which forks a child for each case (`jobs/round_child.py`).

parent                                       process of the round, in a session of its own
  │  ── RoundRequest: job, time limit ─────────>  forks a child, or one for each rank, and waits for its end
  │  <─ Exit: its record, tail, status ────────
  │  ── stop ──────────────────────────────────>  ends the child; for sweeps over several machines
  │  <─ output pipe, pidfd ────────────────────   why the process itself ended

If it ends, the case at hand fails, and the next case gets a new process.
"""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Protocol

from pydantic import TypeAdapter

from dpbench.engine.launch import Exit, TailPipe, kill, marked_environment, oom_kills, watcher
from dpbench.engine.messages import Job, LaunchedRank, RoundRequest
from dpbench.engine.process_tree import GRACE_S, nothing_left_behind
from dpbench.engine.start import child_command

ROUND = child_command("dpbench.jobs.round_child")
STOP = b"stop"
_START_S = 120.0
"""Time to import torch; the children have the time limit of their job."""
_MOST_BYTES = 512 << 20

JobLauncher = Callable[[Job, float], Exit]
"""Measures a job within seconds, and returns how its child ended."""
_EXIT = TypeAdapter(Exit)


def send_exit(connection: Connection, end: Exit) -> None:
    """Record and tail are any bytes, so they follow the JSON as they are."""
    connection.send_bytes(_EXIT.dump_json(replace(end, record=b"", tail=b"")))
    connection.send_bytes(end.record)
    connection.send_bytes(end.tail)


def receive_exit(connection: Connection) -> Exit:
    """Raises EOFError or OSError if the process has ended."""
    end = _EXIT.validate_json(connection.recv_bytes(_MOST_BYTES))
    return replace(end, record=connection.recv_bytes(_MOST_BYTES), tail=connection.recv_bytes(_MOST_BYTES))


def run_alone(job: Job, timeout_s: float) -> Exit:
    processes = RoundProcesses()
    try:
        return processes.launch(job, timeout_s)
    finally:
        processes.end_round()


class JobRunner(Protocol):
    """`RoundProcesses` on this machine, `Followers` on several."""

    def launch(self, job: Job, timeout_s: float, /) -> Exit: ...
    def end_round(self) -> None: ...


class RoundProcesses:
    """After use, call `end_round`."""

    def __init__(self, command: Sequence[str] = ROUND) -> None:
        self._command = command
        self._round: _Round | None = None
        self._of: tuple[str, int] | None = None

    def end_round(self) -> None:
        """Raises UnkillableError."""
        if self._round is not None:
            ending, self._round = self._round, None
            ending.close()

    def launch(
        self, job: Job, timeout_s: float, launched: LaunchedRank | None = None, stop_fd: int | None = None
    ) -> Exit:
        """The child is stopped if `stop_fd` becomes readable. Raises OSError and UnkillableError."""
        of = job.run, job.round
        if self._round is None or of != self._of:
            self.end_round()
            self._round, self._of = _Round(self._command), of
        try:
            end = self._round.run(RoundRequest(job=job, timeout_s=timeout_s, launched=launched), stop_fd)
        except BaseException:
            self.end_round()
            raise
        if self._round.is_over:
            self.end_round()
        return end


class _Round:
    """`is_over` is whether the process has ended, or must be ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self.is_over = False
        with ExitStack() as stack:
            self._output = stack.enter_context(TailPipe())
            mark = stack.enter_context(watcher())
            stack.enter_context(nothing_left_behind())
            self._connection, theirs = Pipe()
            stack.enter_context(self._connection)
            with theirs:
                self._process = subprocess.Popen(
                    [*command, "--requests-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output.writer,
                    stderr=self._output.writer,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env=marked_environment(mark),
                )
            stack.callback(kill, self._process)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def run(self, request: RoundRequest, stop_fd: int | None) -> Exit:
        started_at, start_s = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        oom_kills_before = oom_kills()
        try:
            self._connection.send_bytes(request.model_dump_json(by_alias=True).encode())
            end = self._answer(start_s + _START_S + request.timeout_s + 2 * GRACE_S, stop_fd)
        except (EOFError, OSError):  # the process has closed its end of the connection, so it is ending
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            is_late = False
        else:
            if end is not None:
                return end
            is_late = True
        self.is_over = True
        returncode = kill(self._process)
        self._output.drain()
        return Exit(
            started_at=started_at,
            duration_s=time.monotonic() - start_s,
            returncode=returncode,
            timed_out_after_s=request.timeout_s if is_late else None,
            tail=bytes(self._output.kept),
            oom_kills=oom_kills() - oom_kills_before,
        )

    def _answer(self, deadline_s: float, stop_fd: int | None) -> Exit | None:
        """None at the deadline; raises EOFError or OSError if the process has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ, self._connection)
            selector.register(self._output.reader, selectors.EVENT_READ, self._output)
            if stop_fd is not None:
                selector.register(stop_fd, selectors.EVENT_READ)
            while (left_s := deadline_s - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    if isinstance(key.data, Connection):
                        return receive_exit(key.data)
                    if isinstance(key.data, TailPipe):
                        key.data.read()
                    else:
                        selector.unregister(key.fileobj)
                        self._connection.send_bytes(STOP)
        return None
