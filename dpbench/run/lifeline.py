"""A child ends when its parent does, even when the parent is killed by SIGKILL. Linux only."""

import ctypes
import os
import signal

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
