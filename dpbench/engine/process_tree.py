"""A child dies with its parent, and no process outlives the block that started it. Linux only.

A process can leave its group and its session, and its parent can end first. Then the nearest ancestor that is a
subreaper adopts it (prctl(2), PR_SET_CHILD_SUBREAPER). Inside `nothing_left_behind` this process is a subreaper, so all
descendants stay in its tree.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

GRACE_S = 30.0
"""The wait for a process after SIGKILL, which first frees its memory and a driver's contexts."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class UnkillableError(RuntimeError):
    def __init__(self, pid: int) -> None:
        super().__init__(
            f"process {pid} is still there {GRACE_S:g} s after SIGKILL: the kernel holds it, most often in a "
            "device driver; times measured beside it would not be valid"
        )


def die_with_parent(expected_parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends; exit if it has ended. Raise OSError if the kernel refuses.

    For the kernel, the parent is the thread that started this process (prctl(2), PR_SET_PDEATHSIG).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != expected_parent_pid:  # the parent ended before the call, and another process is the parent now
        os._exit(1)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """At the end of the block, kill and reap all processes started inside it, and their descendants.

    Enter one block at a time, and start no other children from other threads meanwhile. Raises UnkillableError.
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
                # This process can reap its own children only. Killing them makes their children its own: hence the
                # loop. A process adopted after the listing has not been killed yet: hence the intersection.
                for child in tree.intersection(here.children()):
                    _reap(child)


def _reap(child: psutil.Process) -> None:
    try:
        child.wait(GRACE_S)
    except psutil.TimeoutExpired:
        raise UnkillableError(child.pid) from None


def adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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
