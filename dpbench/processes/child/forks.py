"""A side of a gate's round as a fork of this process, and the pipe to it."""

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from dpbench.processes.child.process import run_and_exit
from dpbench.processes.interpret import ending
from dpbench.processes.launch import Exit
from dpbench.processes.messages import SideName
from dpbench.records.record import Outcome

Block = tuple[float, ...]
"""The seconds of the steps of one block."""
_TEAR_DOWN_S = 2.0
Serve = Callable[[Connection, int], object]
"""What a side does: it gets its end of the pipe and the pid of this process."""


class SideError(Exception):
    """A side failed, with its outcome and the reason."""

    def __init__(self, side: SideName, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.side, self.outcome, self.reason = side, outcome, reason


@dataclass(frozen=True)
class Fork:
    """A side's process, and this process' end of the pipe to it."""

    name: SideName
    pid: int
    pipe: Connection
    deadline_s: float

    def take(self, steps: int, number: int = 1) -> Block:
        with suppress(BrokenPipeError):  # the side ended; `receive` finds the reason
            self.pipe.send_bytes(json.dumps({"steps": steps, "number": number}).encode())
        return self.receive()

    def receive(self) -> Block:
        """Return the seconds of the steps that the side reports. Raises SideError."""
        return tuple(map(float, self.message()["steps_s"]))

    def message(self) -> dict[str, Any]:
        """Return the side's next message. Raises SideError if it reports a failure, ends, or is late."""
        if not self.pipe.poll(max(0.0, self.deadline_s - time.monotonic())):
            raise SideError(self.name, Outcome.TIME_OUT, "no answer in time")
        try:
            message: dict[str, Any] = json.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise SideError(self.name, Outcome.CRASHED, self._how_it_ended()) from None
        if "outcome" in message:
            raise SideError(self.name, Outcome(message["outcome"]), message["reason"])
        return message

    def _how_it_ended(self) -> str:
        how = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert how is not None
        returncode = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
        return ending(Exit(started_at="", duration_s=0.0, returncode=returncode))


@contextmanager
def forked(name: SideName, serve: Serve, timeout_s: float) -> Iterator[Fork]:
    """Run a side in a process of its own. At the end of the block it may tear its step down, and is killed then."""
    ours, theirs = Pipe()
    coordinator = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        run_and_exit(lambda: serve(theirs, coordinator))
    theirs.close()
    try:
        yield Fork(name, pid, ours, time.monotonic() + timeout_s)
    finally:
        ours.close()
        with os.fdopen(os.pidfd_open(pid), "rb", 0) as pidfd:
            select.select([pidfd], [], [], _TEAR_DOWN_S)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
