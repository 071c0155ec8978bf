"""Time a step without the waits that other processes cause; Linux only.

The wall clock stops while this thread waits for a core:

    wall clock   ├── runs ──┤ waits for a core ├── runs ──┤ sleeps ├── runs ──┤
    counted      ├── runs ──┤                  ├── runs ──┤ sleeps ├── runs ──┤

CPU time would also leave out sleeps, and with them waits for a lane or a device. The kernel counts the nanoseconds in
which a thread could run and had no core (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat, second field).
If this process' own threads or children ran meanwhile, the wait counts. A gate's coordinator adds the time of living
children (`jobs/forks.py`). Time that a hypervisor takes cannot be seen, so it counts too.
"""

import ctypes
import os
import platform
import resource
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress

_NANOSECONDS = 1e-9
_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}  # asm/unistd.h; on other machines priorities are not compared
_ATTRIBUTES_BYTES = 56  # linux/sched/types.h: with the limits of utilisation
_CPUCLOCK_SCHED = 2  # linux/posix-timers.h, as clock_getcpuclockid(3) makes a clock of a process


def undisturbed(action: Callable[[], object], clock: Callable[[], float]) -> Callable[[], float]:
    read = stopwatch(clock)

    def timed_s() -> float:
        read()
        action()
        return read()

    return timed_s


def stopwatch(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock for pairs of readings, 0 and then the action's seconds, above 0; for the calling thread only."""
    waited_s = wait_counter()
    begun: list[tuple[float, float, float, float]] = []

    def read() -> float:
        if not begun:
            begun.append((waited_s(), time.thread_time(), _others_s(), clock()))
            return 0.0
        end_s = clock()
        waits_s, ran_s, others_s, start_s = begun.pop()
        others_s, ran_s = _others_s() - others_s, time.thread_time() - ran_s
        return counted_s(end_s - start_s, ran_s, waited_s() - waits_s, others_s)

    return read


def counted_s(wall_s: float, ran_s: float, waited_s: float, others_s: float) -> float:
    """Wall-clock seconds less the waits that other processes caused; `others_s` are CPU seconds of this process'
    other threads and ended children.

    The result is at least `ran_s`, because the kernel's counters differ at times. If a hypervisor took the core, both
    may show that nothing ran; then the wall clock counts in full.
    """
    left_s = max(wall_s - max(0.0, waited_s - others_s), min(ran_s, wall_s))
    return left_s if left_s > 0 else wall_s


def wait_counter(thread: str = "thread-self") -> Callable[[], float]:
    """A function that returns the thread's waits for a core so far, in seconds; 0 without the kernel's counter."""
    try:
        schedstat = open(f"/proc/{thread}/schedstat", "rb", buffering=0)  # noqa: SIM115  # the function keeps it open
    except OSError:
        return lambda: 0.0

    def read() -> float:
        return int(os.pread(schedstat.fileno(), 64, 0).split()[1]) * _NANOSECONDS

    weakref.finalize(read, schedstat.close)  # else a project whose warnings are errors sees one
    return read


def _others_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() - time.thread_time() + ended.ru_utime + ended.ru_stime


def descendants_s(pid: int, without: Collection[int] = ()) -> float:
    """CPU seconds of living descendants, `without` some children and theirs; 0 if the kernel does not list children
    (CONFIG_PROC_CHILDREN).
    """
    total_s = 0.0
    for thread in _threads(pid):
        with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
            children = set(map(int, file.read().split())).difference(without)
            total_s += sum(process_s(child) + descendants_s(child) for child in children)
    return total_s


def process_s(pid: int) -> float:
    """CPU seconds of its threads, ended ones included; 0 if the process has ended."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    return 0.0


def scheduling(pid: int) -> tuple[frozenset[bytes], frozenset[int]]:
    """The priorities of the process's threads, as the kernel has them (sched_setattr(2)), and all their cores."""
    priorities, cores, buffer = set[bytes](), set[int](), ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    number, libc = _SCHED_GETATTR.get(platform.machine()), ctypes.CDLL(None)
    for thread in _threads(pid):
        with suppress(OSError):  # it has ended
            cores |= os.sched_getaffinity(thread)
            if number and libc.syscall(number, thread, buffer, _ATTRIBUTES_BYTES, 0) == 0:
                priorities.add(buffer.raw)
    return frozenset(priorities), frozenset(cores)


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return list(map(int, os.listdir(f"/proc/{pid}/task")))
    return []
