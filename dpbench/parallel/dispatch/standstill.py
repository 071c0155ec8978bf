"""Whether a thread waits for another thread: it has not run, the process is idle, and the wait is for a lock.

Linux shows this exactly. A waiting thread's CPU clock stands still, to the nanosecond. The kernel names the call in
which it waits (``/proc/self/task/ID/wchan``): a lock, condition, queue or barrier is a *futex*. A sleep, a file, a
socket or a child process is not. Elsewhere nothing is known, and `StallWatchdog` waits longer.

Not taken for such a wait:

computing, also a poll in a loop        the thread's clock goes on
a wait for the GIL                      it ends every 5 ms, so the clock goes on
a wait for the process's other threads  their clock goes on: intra-op threads, a user's pool, a garbage collection
a compiler, a child process, a debugger the names of the modules on the thread's stack
"""

import sys
import threading
import time
from typing import NamedTuple

BUSY_SHARE = 0.1
"""The process is idle if it uses less than this share of one core."""

_ON_THEIR_OWN = (
    "torch._dynamo.convert_frame",
    "torch._inductor",
    "torch.utils.cpp_extension",
    "torch.utils.file_baton",
    "triton.compiler",
    "triton.runtime.build",
    "subprocess",
    "bdb",
    "debugpy",
    "pydevd",
    "_pydevd_bundle",
)
"""Compilers, child processes and debuggers: they wait for work of their own, or for the user, never for a replica."""


class Moment(NamedTuple):
    """A thread's and its process's CPU time, and the time of day that belongs to them, in seconds."""

    thread_s: float
    process_s: float
    now_s: float

    def is_idle_since(self, earlier: "Moment") -> bool:
        """Whether the thread has not run at all since `earlier`, and the process hardly."""
        passed_s = self.now_s - earlier.now_s
        return self.thread_s == earlier.thread_s and self.process_s - earlier.process_s < BUSY_SHARE * passed_s


class WatchedThread:
    """The calling thread, to be watched from another one."""

    __slots__ = ("_clock", "_ident", "_wait_channel")

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        # The number of the clock holds the thread's: asking for a thread that has ended is an error, not a crash.
        self._clock = time.pthread_getcpuclockid(self._ident) if sys.platform == "linux" else None
        self._wait_channel = f"/proc/self/task/{threading.get_native_id()}/wchan"

    def moment(self) -> Moment | None:
        """The present moment; None if this system does not show it."""
        if self._clock is None:
            return None
        try:
            return Moment(time.clock_gettime(self._clock), time.process_time(), time.monotonic())
        except OSError:  # the thread has ended
            return None

    def waits_for_a_lock(self) -> bool:
        """Whether the kernel says that the thread waits for a lock."""
        try:
            with open(self._wait_channel) as file:
                return "futex" in file.read()
        except OSError:
            return False

    def is_on_its_own(self, until: str) -> bool:
        """Whether a compiler, a debugger or the like is on the thread's stack, above the module `until`."""
        frame = sys._current_frames().get(self._ident)
        while frame is not None and (name := str(frame.f_globals.get("__name__"))) != until:
            if any(f"{name}.".startswith(f"{module}.") for module in _ON_THEIR_OWN):
                return True
            frame = frame.f_back
        return False
