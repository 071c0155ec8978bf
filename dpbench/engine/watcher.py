"""The process that ends a child's descendants if SIGKILL ends the parent.

    python -I -S .../dpbench/engine/watcher.py MARK [FOLDER]

It sleeps until its stdin ends. Then it kills all processes whose environment holds the mark, also those in other
sessions, and removes FOLDER. A descendant that starts a program with an empty environment escapes.

This file runs by its path, so it imports the standard library only.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator

_PATIENCE_S = 30.0
_PAUSE_S = 0.02


def _watch(mark: str, folders: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    deadline_s = time.monotonic() + _PATIENCE_S
    # A process may fork while the others are listed, so look again until there is none.
    while sum(map(_kill, _marked(mark.encode()))) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
    for folder in folders:
        _remove(folder)


def _remove(folder: str) -> None:
    import shutil  # here, because a watcher seldom comes to this

    shutil.rmtree(folder, ignore_errors=True)


def _marked(mark: bytes) -> Iterator[int]:
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fd = os.pidfd_open(int(name))  # before the check: the number may be given to another process
        except OSError:
            continue
        if mark in _environment(name):
            yield fd
        os.close(fd)


def _environment(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _kill(fd: int) -> bool:
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    _watch(sys.argv[1], sys.argv[2:])
