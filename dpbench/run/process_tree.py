"""Whatever a block starts ends with it: the whole tree of processes, orphans and daemons included. Linux only.

A process can leave its group and its session, and its parent can die before it does; then it is adopted by
the nearest ancestor that is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER). Inside the block that is this
process, so that nothing started there can get out of the tree below it.
"""
# MERGED-DOC run.lifeline: """A child ends when its parent does, even when the parent is killed by SIGKILL. Linux only."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(expected_parent_pid: int) -> None:
    """From now on the kernel kills this process when its parent ends; if it ended already, exit at once.

    "Parent" is the thread that started this process (prctl(2), PR_SET_PDEATHSIG), so start children
    from a thread that lives as long as they may. Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != expected_parent_pid:  # it ended before the kernel was told, and we have been adopted
        os._exit(1)


GRACE_S = 30.0
"""SIGKILL takes a moment: a large process hands back its memory and a driver its contexts before it is gone."""

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # linux/prctl.h


class UnkillableError(RuntimeError):
    def __init__(self, pid: int) -> None:
        super().__init__(
            f"process {pid} is still there {GRACE_S:g} s after SIGKILL: the kernel holds it, most often in a "
            "device driver, and nothing measured beside it would be valid"
        )


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Kill and reap, at the end of the block, every process that was started inside and all its descendants.

    One block at a time, and no other thread may start children meanwhile: they would be taken for orphans.
    Raises UnkillableError if a process outlives SIGKILL by `GRACE_S`.
    """
    here = psutil.Process()
    before = set(here.children(recursive=True))
    with _adopting_orphans():
        try:
            yield
        finally:
            while tree := set(here.children(recursive=True)) - before:
                for process in tree:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                # Only our own children can be waited for; those of the dead become ours, hence the loop.
                # One that became ours since the listing was not killed yet.
                for child in tree.intersection(here.children()):
                    _reap(child)


def _reap(child: psutil.Process) -> None:
    try:
        child.wait(GRACE_S)
    except psutil.TimeoutExpired:
        raise UnkillableError(child.pid) from None


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)
    was_subreaper = ctypes.c_int()
    if libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was_subreaper), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_GET_CHILD_SUBREAPER) failed")
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, was_subreaper.value, 0, 0, 0)
