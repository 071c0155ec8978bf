"""The one place that forks. A fork dies with its parent and ends without Python's tear-down. Linux only.

this process                                 fork: `work`
  │  <────── record: a file in memory ──────   nobody has to read it while the fork runs
  │  <────── output: a file in memory ──────   stdout and stderr
  └─ pidfd: it ended
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from time import monotonic
from typing import NamedTuple

from dpbench.engine.launch import RECORD_BYTES, TAIL_BYTES, Exit
from dpbench.engine.process_tree import die_with_parent

Work = Callable[[], object]
RecordedWork = Callable[[int], object]
"""Gets the descriptor of its record."""


def fork(work: Work, *, output_fd: int | None = None, starts_session: bool = False) -> int:
    """Return the pid of a fork that calls `work`, and exits with 0, or with 1 and a traceback if it raises.

    Its output goes to `output_fd`. In a POSIX session of its own, Ctrl-C does not reach it.
    """
    parent_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if starts_session:
            os.setsid()
        die_with_parent(parent_pid)
        if output_fd is not None:
            os.dup2(output_fd, 1)
            os.dup2(output_fd, 2)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Forked(NamedTuple):
    """A fork whose record and output go to files in memory; `ended` is a pidfd."""

    pid: int
    ended: int
    record_fd: int
    output_fd: int

    @classmethod
    def start(cls, work: RecordedWork) -> "Forked":
        record_fd, output_fd = os.memfd_create("record"), os.memfd_create("output")
        pid = fork(partial(work, record_fd), output_fd=output_fd)
        return cls(pid, os.pidfd_open(pid), record_fd, output_fd)

    def output_bytes(self) -> int:
        return os.fstat(self.output_fd).st_size

    def output(self, start: int = 0) -> bytes:
        """What was written from byte `start` on, at most 64 KiB."""
        return os.pread(self.output_fd, TAIL_BYTES, start)

    def end(self, timed_out_after_s: float | None = None) -> Exit:
        """Wait for the end. Call it once."""
        return Exit(
            started_at="",
            duration_s=0.0,
            returncode=os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]),
            timed_out_after_s=timed_out_after_s,
            record=os.pread(self.record_fd, RECORD_BYTES, 0),
            tail=self.output(max(0, self.output_bytes() - TAIL_BYTES)),
        )

    def close(self) -> None:
        for fd in (self.ended, self.record_fd, self.output_fd):
            os.close(fd)


def run_in_forks(works: Sequence[RecordedWork], timeout_s: float, at_once: int) -> list[Exit]:
    """How each of the `works` ended, in order; so many run `at_once`.

    A fork that is late is killed, because its code can switch off an alarm of its own.
    """
    waiting, running, ends = list(enumerate(works)), list[tuple[int, Forked, float]](), dict[int, Exit]()
    while waiting or running:
        while waiting and len(running) < at_once:
            index, work = waiting.pop(0)
            running.append((index, Forked.start(work), monotonic() + timeout_s))
        ended = wait([fork.ended for _, fork, _ in running], max(0.0, running[0][2] - monotonic()))
        place = next(place for place, (_, fork, _) in enumerate(running) if not ended or fork.ended in ended)
        index, fork, _ = running.pop(place)
        if not ended:
            signal.pidfd_send_signal(fork.ended, signal.SIGKILL)
        ends[index] = fork.end(None if ended else timeout_s)
        fork.close()
    return [ends[index] for index in range(len(works))]
