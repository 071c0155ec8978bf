"""Time less what other processes took of it: the wall clock, stopped while this thread waits for a core. Linux only.

    wall clock   ├── runs ──┤ waits for a core ├── runs ──┤ sleeps ├── runs ──┤
    counted      ├── runs ──┤                  ├── runs ──┤ sleeps ├── runs ──┤

CPU time would lose sleeps too, and with them every wait for a lane or a device. The kernel counts the nanoseconds in
which a thread could run and had no core (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat, second
field). Such a wait is the neighbours' doing only as far as this process' own threads did not run meanwhile: a step that
crowds itself off its core pays for it.

Time that a hypervisor takes is not among it.
"""

import os
import time
from collections.abc import Callable

from dpbench.measure.clock import Clock

_NANOSECONDS = 1e-9


def undisturbed(action: Callable[[], object], clock: Clock) -> Callable[[], float]:
    """Answers how long `action` takes, in seconds above 0. For the thread that asks for it, and in its life."""
    waited_s = _waited()

    def timed_s() -> float:
        waits_s, ran_s, others_s, start_s = waited_s(), time.thread_time(), _other_threads_s(), clock()
        action()
        wall_s = clock() - start_s
        others_s, ran_s = _other_threads_s() - others_s, time.thread_time() - ran_s
        return counted_s(wall_s, ran_s, waited_s() - waits_s, others_s)

    return timed_s


def counted_s(wall_s: float, ran_s: float, waited_s: float, other_threads_s: float) -> float:
    """What is left of the wall clock; at least what this thread `ran`, as the kernel's two books differ at times.

    Where a hypervisor takes the core away both books may say that nothing ran: then all of the wall clock counts.
    """
    left_s = max(wall_s - max(0.0, waited_s - other_threads_s), min(ran_s, wall_s))
    return left_s if left_s > 0 else wall_s


def _waited() -> Callable[[], float]:
    """Of this thread, since it began; always 0 where the kernel does not tell."""
    try:
        told = open("/proc/thread-self/schedstat", "rb", buffering=0)  # noqa: SIM115  # open as long as it is asked
    except OSError:
        return lambda: 0.0
    return lambda: int(os.pread(told.fileno(), 64, 0).split()[1]) * _NANOSECONDS


def _other_threads_s() -> float:
    """CPU time of all threads of this process but this one."""
    return time.process_time() - time.thread_time()
