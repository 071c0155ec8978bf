"""Run one child to its end, keep what it sent, and kill the rest of its process tree.

Linux only.

parent                                      child, in a session of its own: Ctrl-C reaches the parent alone
  │  stdin: the request ──────────────────────>  sys.stdin
  │  <────────── record pipe: the record ──────  --record-fd N
  │  <────────── output pipe: the last 64 KiB ─  stdout and stderr
  │  <────────── pidfd: it ended ──────────────
  └─ one blocking select over the three            --parent-pid P, for `process_tree.die_with_parent`

Beside each child runs a watcher (`watcher.py`), for the case that SIGKILL ends the parent.
"""

import os
import selectors
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Self

from dpbench.run.process_tree import GRACE_S, UnkillableError, nothing_left_behind

_MARK = "DPBENCH_LAUNCH"
_RECORD_BYTES = 64 << 20
_TAIL_BYTES = 64 << 10
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Exit:
    """How a child ended. `returncode` is negative for a signal, as in subprocess.

    `timed_out_after_s` is the time limit if the limit ended the child, else None. `record` has the first 64 MiB that
    the child wrote to its record pipe. `tail` has the last 64 KiB of its stdout and stderr. `oom_kills` counts the
    processes that the kernel killed meanwhile because memory ran out, on the whole machine. `duration_s` is the time
    from the start of the child to its end. `is_stopped` is whether the caller stopped the child.
    """

    started_at: str
    duration_s: float
    returncode: int
    timed_out_after_s: float | None = None
    record: bytes = b""
    tail: bytes = b""
    oom_kills: int = 0
    is_stopped: bool = False


def launch(
    command: list[str], stdin_text: str, timeout_s: float, stop_fd: int | None = None, scratch: Path | None = None
) -> Exit:
    """Run `command` until it ends or `timeout_s` have passed, and return how it ended.

    If `stop_fd` becomes readable, the child is stopped before. If SIGKILL ends this process, the folder `scratch` is
    removed.
    Then the rest of its process tree is killed. ``--record-fd N --parent-pid P`` is appended to the command. The
    process tree is also killed if an exception, such as KeyboardInterrupt, ends this function. Raises OSError if the
    command cannot be started, and UnkillableError if a process survives SIGKILL.
    """
    started_at, start_s = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
    oom_kills_before = _oom_kills()
    with _Pipe(drop=slice(_RECORD_BYTES, None)) as record, _Pipe(drop=slice(None, -_TAIL_BYTES)) as output:
        with _watcher(scratch) as mark, nothing_left_behind():
            child = _start(command, stdin_text, record, output, mark)
            try:
                ended = _watch(child, (record, output), start_s + timeout_s, stop_fd)
            finally:
                _end(child)
            duration_s = time.monotonic() - start_s
        record.drain()
        output.drain()
        return Exit(
            started_at=started_at,
            duration_s=duration_s,
            returncode=child.returncode,
            timed_out_after_s=timeout_s if ended is _Ending.LATE else None,
            record=bytes(record.kept),
            tail=bytes(output.kept),
            oom_kills=_oom_kills() - oom_kills_before,
            is_stopped=ended is _Ending.STOPPED,
        )


@contextmanager
def _watcher(scratch: Path | None) -> Iterator[str]:
    """Run the process that kills what carries the mark, and removes `scratch`, if SIGKILL ends this one.

    Yield the mark.
    """
    mark = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("watcher.py")), mark]
    command += [] if scratch is None else [str(scratch.absolute())]
    # An environment of its own, so that the watcher of an outer launch does not end it before its work is done.
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={}, start_new_session=True) as watcher:
        try:
            yield mark
        finally:
            watcher.kill()


class _Pipe:
    """A pipe that the child writes to. `kept` has what was read, without the slice `drop`.

    The parent keeps the writing end open, so the pipe never reaches its end. If the child closes it early, the select
    does not wake up for that. If a grandchild holds it open, the parent does not wait for the grandchild.
    """

    def __init__(self, drop: slice) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self.reader, self.writer = os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)
        self.kept = bytearray()
        self._drop = drop

    def read(self) -> bool:
        """Read what the pipe holds. Return False if it is empty."""
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


def _start(command: list[str], stdin_text: str, record: _Pipe, output: _Pipe, mark: str) -> subprocess.Popen[bytes]:
    # The child reads a file in memory at its own pace. A pipe would block the parent while it is full.
    with os.fdopen(os.memfd_create("stdin"), "wb+", 0) as stdin:
        stdin.write(stdin_text.encode())
        stdin.seek(0)
        return subprocess.Popen(
            [*command, "--record-fd", str(record.writer.fileno()), "--parent-pid", str(os.getpid())],
            stdin=stdin,
            stdout=output.writer,
            stderr=output.writer,
            pass_fds=[record.writer.fileno()],
            start_new_session=True,
            env={**os.environ, _MARK: mark},
        )


class _Ending(Enum):
    ITSELF = "the child ended"
    LATE = "the deadline passed"
    STOPPED = "the caller stopped it"


def _watch(child: subprocess.Popen[bytes], pipes: tuple[_Pipe, ...], deadline_s: float, stop_fd: int | None) -> _Ending:
    """Read the pipes until the child ends, the deadline passes or `stop_fd` is readable."""
    with selectors.DefaultSelector() as selector, os.fdopen(os.pidfd_open(child.pid), "rb", 0) as ended:
        selector.register(ended, selectors.EVENT_READ, _Ending.ITSELF)
        if stop_fd is not None:
            selector.register(stop_fd, selectors.EVENT_READ, _Ending.STOPPED)
        for pipe in pipes:
            selector.register(pipe.reader, selectors.EVENT_READ, pipe)
        while (left_s := deadline_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if isinstance(key.data, _Ending):
                    return key.data
                key.data.read()
    return _Ending.LATE


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()  # has no effect on a child that has ended; `wait` then returns how it ended
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        raise UnkillableError(child.pid) from None


def _oom_kills() -> int:
    """Return the number of out-of-memory kills since boot.

    Kills for a cgroup's limit are included (mm/oom_kill.c, __oom_kill_process).
    """
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, count = line.split()
        if name == "oom_kill":
            return int(count)
    return 0
