"""A side of a gate's round as a fork of this process: both ends of its pipe.

coordinator (lockstep_child.py)         side: it takes blocks of one commit's step on request
  │ <──── {"steps_s": [0.006]} ───────    ready, after warm-up; or {"outcome": ..., "reason": ...}, and the side ends
  │ ───── {"steps": 0, "way": "", ...} ──>   only for a scheme that chooses by trials: until none are left
  │ <──── {"way": "sequence", ...} ───    its choice; the other sides are asked to choose what base chose
  │ ───── {"steps": 2, "number": 1} ──>
  │ <──── {"steps_s": [0.006, ...]} ──    the block
  │ ───── end of the pipe ────────────>
  │ <──── {} ─────────────────────────    if it was asked to check: what was timed computes what it should
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from socket import AF_UNIX, SHUT_WR, SOCK_SEQPACKET, socket, socketpair
from typing import NamedTuple

from dpbench.engine.fence import enclose
from dpbench.engine.fork import fork
from dpbench.engine.interpret import answer_in, ending
from dpbench.engine.launch import Exit
from dpbench.engine.messages import SideName, SideReport
from dpbench.engine.process_tree import adopt_orphans
from dpbench.measure.borrowed.lent import BorrowedError
from dpbench.measure.undisturbed import descendants_s, process_s, scheduling, wait_counter
from dpbench.records.record import Outcome
from dpbench.text.outside import one_line

Block = tuple[float, ...]
Serve = Callable[[socket], object]
Step = Callable[[int], float]
"""Takes a step, of a number of calls if borrowed, and returns its seconds."""
Send = Callable[[dict[str, object]], object]

WARMUP_S = 0.2
_TEAR_DOWN_S = 2.0
_REQUEST_BYTES = 64
_MOST_BYTES = 1 << 18
"""More than the kernel lets a side send at once; the rest of a longer message is dropped."""
_REASON_CHARACTERS = 1000
_GRACE_S = 1.0
"""A side that has closed its pipe ends within this time, or closed it on purpose."""
_OTHER_SCHEDULING = (
    "its threads have other priorities or cores than those of base; allowed: the same, because the times are compared"
)


class SideError(Exception):
    def __init__(self, side: SideName, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.side, self.outcome, self.reason = side, outcome, reason


class Taken(NamedTuple):
    """A block: the seconds of its steps, of a borrowed benchmark of its calls, and their sum by the side's clock.

    `wall_s` are its seconds by this process's clock, and `outside_s` these without waits for a core. `others_s` are
    the CPU seconds that each other side used meanwhile.
    """

    steps_s: Block
    reported_s: float
    wall_s: float
    outside_s: float
    others_s: Mapping[SideName, float]


@dataclass(frozen=True)
class Fork:
    """`ended` is a pidfd; `waited_s` returns both processes' waits for a core."""

    name: SideName
    pid: int
    ended: int
    pipe: socket
    waited_s: Callable[[], float]
    deadline_s: float
    limit_s: float

    def take(self, steps: int, number: int = 1, forks: Sequence["Fork"] = ()) -> Taken:
        """Take a block while the other `forks` of the round sleep.

        Waits for processes that the side has started count. Raises SideError.
        """
        if self._received():
            raise self._wrong("it answered before it was asked")
        before_s = {fork.name: fork.used_s(forks) for fork in forks if fork is not self}
        waits_s, helpers_s, start_s = self.waited_s(), self.helpers_s(forks), time.perf_counter()
        self._ask({"steps": steps, "number": number})
        message = self._message()
        wall_s, waits_s = time.perf_counter() - start_s, self.waited_s() - waits_s
        hidden_s = min(waits_s, max(0.0, self.helpers_s(forks) - helpers_s))
        others_s = {fork.name: fork.used_s(forks) - before_s[fork.name] for fork in forks if fork is not self}
        block = self._report(message, max(1, steps)).steps_s
        if len({scheduling(fork.pid) for fork in forks}) > 1:
            raise SideError(SideName.HEAD, Outcome.WRONG_RESULT, _OTHER_SCHEDULING)
        calls = len(block) * number
        block = tuple(step_s + hidden_s / calls for step_s in block)
        return Taken(block, sum(block) * number, wall_s, wall_s - (waits_s - hidden_s), others_s)

    def settle(self, way: str = "") -> str:
        """Use up the scheme's trials, which choose `way`, or by their times if it is empty; return the choice."""
        self._ask({"steps": 0, "number": 1, "way": way})
        return self._report(self._message(), 1).way

    def used_s(self, forks: Sequence["Fork"]) -> float:
        """CPU seconds of the side and of its helpers."""
        return process_s(self.pid) + self.helpers_s(forks)

    def helpers_s(self, forks: Sequence["Fork"]) -> float:
        """CPU seconds of living processes that the side has started.

        This process adopts those that are no side's child any more. They count as head's: base's code is trusted.
        """
        if self.name is not SideName.HEAD:
            return descendants_s(self.pid)
        return descendants_s(os.getpid(), without={self.pid, *(fork.pid for fork in forks)}) + descendants_s(self.pid)

    def receive(self, times: int = 1) -> SideReport:
        """Raises SideError unless the side's next report has so many times."""
        return self._report(self._message(), times)

    def check(self) -> None:
        """Raises SideError unless the side reports that what it timed is right. It takes no block afterwards."""
        with suppress(OSError):  # the side has ended
            self.pipe.shutdown(SHUT_WR)
        self.receive(0)

    def end(self) -> None:
        """Raises SideError if the side's tear-down fails, as a borrowed test's end may, or its check."""
        with suppress(OSError):  # the side has ended
            self.pipe.shutdown(SHUT_WR)
        wait([self.pipe, self.ended], _TEAR_DOWN_S)
        if message := self._received():
            self._report(message, 0)

    def _ask(self, request: dict[str, object]) -> None:
        with suppress(BrokenPipeError, BlockingIOError):  # the side ended or does not read: no answer comes either
            self.pipe.send(json.dumps(request).encode())

    def _message(self) -> bytes:
        if not wait([self.pipe, self.ended], max(0.0, self.deadline_s - time.monotonic())):
            raise SideError(self.name, Outcome.TIME_OUT, f"no answer in {self.limit_s:g} s")
        if message := self._received():
            return message
        raise SideError(self.name, Outcome.CRASHED, self._how_it_ended())

    def _received(self) -> bytes:
        try:
            return self.pipe.recv(_MOST_BYTES)
        except (BlockingIOError, ConnectionResetError):
            return b""

    def _report(self, message: bytes, times: int) -> SideReport:
        report = answer_in(message, SideReport)
        if report is not None and report.outcome is not Outcome.OK:
            raise SideError(self.name, report.outcome, one_line(report.reason)[:_REASON_CHARACTERS])
        if report is None or len(report.steps_s) != times:
            raise self._wrong(f"it did not report {times} times in seconds, above 0")
        return report

    def _wrong(self, reason: str) -> SideError:
        return SideError(self.name, Outcome.WRONG_RESULT, reason)

    def _how_it_ended(self) -> str:
        if not wait([self.ended], _GRACE_S):
            return "closed its pipe"
        how = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert how is not None
        returncode = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
        return ending(Exit(started_at="", duration_s=0.0, returncode=returncode))


@contextmanager
def forked(
    name: SideName, serve: Serve, timeout_s: float, *, keep: Sequence[int] = (), folders: Sequence[Path] = ()
) -> Iterator[Fork]:
    """Run a side behind the fence; it may write in `folders` too. At the block's end it may tear its step down, and is
    then killed.
    """
    adopt_orphans()
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)  # keeps messages apart, so that none arrives in part
    pid = fork(partial(_enclosed, serve, theirs, keep, folders))
    theirs.close()
    ours.setblocking(False)
    ended, own_s, side_s = os.pidfd_open(pid), wait_counter(), wait_counter(str(pid))
    try:
        side = Fork(name, pid, ended, ours, lambda: own_s() + side_s(), time.monotonic() + timeout_s, timeout_s)
        yield side
        side.end()
    finally:
        ours.close()
        wait([ended], _TEAR_DOWN_S)
        os.close(ended)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _enclosed(serve: Serve, pipe: socket, keep: Sequence[int], folders: Sequence[Path]) -> None:
    try:
        adopt_orphans()
        enclose(pipe.fileno(), *keep, folders=folders)
        serve(pipe)
    except BaseException as error:
        with suppress(OSError):
            sender(pipe)(failed(Outcome.CRASHED, error))
        raise


def take_blocks(pipe: socket, step: Step, settle: Callable[[str], str] = str) -> None:
    """Take blocks until the coordinator closes the pipe; `settle` makes a scheme's trials choose, and returns what."""
    send = sender(pipe)
    try:
        while message := pipe.recv(_REQUEST_BYTES):
            request = json.loads(message)
            way = settle(request.get("way", "")) if not request["steps"] else ""
            send({"steps_s": [step(request["number"]) for _ in range(request["steps"] or 1)], "way": way})
    except Exception as error:
        send(failed(Outcome.CRASHED, error))


def sender(pipe: socket) -> Send:
    return lambda message: pipe.send(json.dumps(message).encode())


def pin(cores: tuple[int, ...]) -> None:
    """Pin all threads, once prepared: on one core the sides would take three times as long to prepare."""
    pinned = set[str]()
    while new := set(os.listdir("/proc/self/task")) - pinned:  # a thread that was not pinned yet may start others
        for thread in new:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), cores)
        pinned |= new


def failed(outcome: Outcome, error: BaseException) -> dict[str, object]:
    line, *_ = str(error).strip().splitlines() or [""]
    reason = line if isinstance(error, BorrowedError) else f"{type(error).__name__}: {line}"
    return {"outcome": outcome, "reason": reason}
