"""Run one child to its end, keep what it sent, and kill the rest of its process tree. Linux only.

parent                                      child, in a session of its own: Ctrl-C reaches the parent alone
  │  stdin: the request ──────────────────────>  sys.stdin
  │  <────────── record pipe: the record ──────  --record-fd N
  │  <────────── output pipe: the last 64 KiB ─  stdout and stderr
  │  <────────── pidfd: it ended ──────────────
  └─ one blocking select over the three            --parent-pid P, for `process_tree.die_with_parent`

`launch` starts a program, `supervise` processes that its caller starts, as `jobs/round_child.py` forks them.
"""

import os
import selectors
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Protocol, Self

import psutil

from dpbench.engine.process_tree import GRACE_S, UnkillableError, nothing_left_behind

_MARK = "DPBENCH_LAUNCH"
RECORD_BYTES = 64 << 20
TAIL_BYTES = 64 << 10
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Exit:
    """`returncode` is negative for a signal. `timed_out_after_s` is the limit that ended the child, else None.

    `record` has the first 64 MiB of its record pipe, `tail` the last 64 KiB of its output. `oom_kills` counts processes
    of the whole machine that the kernel killed meanwhile for lack of memory.
    """

    started_at: str
    duration_s: float
    returncode: int
    timed_out_after_s: float | None = None
    record: bytes = b""
    tail: bytes = b""
    oom_kills: int = 0
    is_stopped: bool = False


class Process(Protocol):
    @property
    def pid(self) -> int: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int | None: ...


Launcher = Callable[[list[str], str, float], Exit]
Start = Callable[[int, int], Sequence[Process]]
"""The processes write to two descriptors, for record and output."""


def launch(
    command: list[str], stdin_text: str, timeout_s: float, stop_fd: int | None = None, scratch: Path | None = None
) -> Exit:
    """Run `command` until it ends, `stop_fd` becomes readable or `timeout_s` have passed; then kill its process tree.

    If SIGKILL ends this process, the folder `scratch` is removed. Raises OSError if the command cannot be started,
    UnkillableError if a process survives SIGKILL.
    """
    with watcher(scratch) as mark:
        return supervise(partial(_start, command, stdin_text, mark), timeout_s, stop_fd)


def supervise(start: Start, timeout_s: float, stop_fd: int | None = None) -> Exit:
    """As `launch`, for the first process that `start` returns; the others are its ranks, and one that fails ends
    all.
    """
    started_at, start_s = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
    oom_kills_before = oom_kills()
    with TailPipe(drop=slice(RECORD_BYTES, None)) as record, TailPipe() as output:
        with nothing_left_behind():
            processes = start(record.writer.fileno(), output.writer.fileno())
            try:
                ended, failed = _watch(processes, (record, output), start_s + timeout_s, stop_fd)
            finally:
                returncode = kill(processes[0])
            duration_s = time.monotonic() - start_s
        record.drain()
        output.drain()
        tail = bytes(output.kept)
        if failed is not None:
            returncode = failed.returncode
            tail += f"rank {failed.rank} ended with status {returncode}\n".encode()
        return Exit(
            started_at=started_at,
            duration_s=duration_s,
            returncode=returncode,
            timed_out_after_s=timeout_s if ended is _Ending.LATE else None,
            record=bytes(record.kept),
            tail=tail,
            oom_kills=oom_kills() - oom_kills_before,
            is_stopped=ended is _Ending.STOPPED,
        )


@contextmanager
def watcher(scratch: Path | None = None) -> Iterator[str]:
    """Yield a mark. If SIGKILL ends this process, all that carries the mark is killed, and `scratch` removed."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watcher.py")), mark]
    command += [] if scratch is None else [str(scratch.absolute())]
    # An environment of its own, so that the watcher of an outer launch does not end it before its work is done.
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={}, start_new_session=True) as process:
        try:
            yield mark
        finally:
            process.kill()


class TailPipe:
    """`kept` has what the child wrote without the slice `drop`.

    The parent keeps the writing end open, so it wakes up for no early close, and waits for no grandchild.
    """

    def __init__(self, drop: slice = slice(None, -TAIL_BYTES)) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self.reader, self.writer = os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
        self.kept = bytearray()
        self._drop = drop

    def read(self) -> bool:
        """False if the pipe is empty."""
        chunk = self.reader.read(_READ_BYTES)  # None if the pipe is empty
        self.kept += chunk or b""
        del self.kept[self._drop]
        return bool(chunk)

    def drain(self) -> None:
        while self.read():
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
        self.writer.close()


def _start(command: list[str], stdin_text: str, mark: str, record_fd: int, output_fd: int) -> list[Process]:
    # The child reads a file in memory at its own pace. A pipe would block the parent while it is full.
    with os.fdopen(os.memfd_create("stdin"), "wb+", 0) as stdin:
        stdin.write(stdin_text.encode())
        stdin.seek(0)
        child = subprocess.Popen(
            [*command, "--record-fd", str(record_fd), "--parent-pid", str(os.getpid())],
            stdin=stdin,
            stdout=output_fd,
            stderr=output_fd,
            pass_fds=[record_fd],
            start_new_session=True,
            env=marked_environment(mark),
        )
    return [child]


def marked_environment(mark: str) -> dict[str, str]:
    return {**os.environ, _MARK: mark}


class _Ending(Enum):
    ITSELF = "the child ended"
    LATE = "the deadline passed"
    STOPPED = "the caller stopped it"


@dataclass(frozen=True)
class _FailedRank:
    rank: int
    returncode: int


def _watch(
    processes: Sequence[Process], pipes: Sequence[TailPipe], deadline_s: float, stop_fd: int | None
) -> tuple[_Ending, _FailedRank | None]:
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for rank, process in enumerate(processes):
            pidfd = stack.enter_context(os.fdopen(os.pidfd_open(process.pid), "rb", 0))
            selector.register(pidfd, selectors.EVENT_READ, rank)
        if stop_fd is not None:
            selector.register(stop_fd, selectors.EVENT_READ, _Ending.STOPPED)
        for pipe in pipes:
            selector.register(pipe.reader, selectors.EVENT_READ, pipe)
        while (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if isinstance(key.data, TailPipe):
                    key.data.read()
                elif key.data is _Ending.STOPPED:
                    return _Ending.STOPPED, None
                elif key.data == 0:
                    return _Ending.ITSELF, None
                else:
                    selector.unregister(key.fileobj)
                    returncode = processes[key.data].wait(0) or 0
                    if returncode:
                        return _Ending.ITSELF, _FailedRank(key.data, returncode)
    return _Ending.LATE, None


def kill(process: Process) -> int:
    """Kill the process unless it has ended; return how it ended."""
    process.kill()  # has no effect on a child that has ended; `wait` then returns how it ended
    try:
        return process.wait(GRACE_S) or 0
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        raise UnkillableError(process.pid) from None


def oom_kills() -> int:
    """Out-of-memory kills since boot, also for a cgroup's limit (mm/oom_kill.c, __oom_kill_process)."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, count = line.split()
        if name == "oom_kill":
            return int(count)
    return 0
