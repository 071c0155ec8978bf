"""Times without the waits that other processes cause."""

import os
import signal
import subprocess
import sys
import threading
import time
import zlib

import pytest

from dpbench.measure import undisturbed as clocks
from dpbench.measure.undisturbed import counted_s, descendants_s, process_s, scheduling, undisturbed

SPIN = "while True: pass"
WORK_S = 0.3


def test_waits_for_a_core_do_not_count():
    assert counted_s(wall_s=3.0, ran_s=1.0, waited_s=1.5, others_s=0.0) == 1.5


def test_waits_while_other_threads_of_the_process_ran_count():
    assert counted_s(wall_s=3.0, ran_s=1.0, waited_s=1.5, others_s=0.5) == 2.0
    assert counted_s(wall_s=3.0, ran_s=1.0, waited_s=1.5, others_s=9.0) == 3.0


def test_the_result_lies_between_cpu_time_and_wall_clock():
    """The kernel's counters of waits and of CPU time differ at times."""
    assert counted_s(wall_s=3.0, ran_s=2.5, waited_s=1.0, others_s=0.0) == 2.5
    assert counted_s(wall_s=3.0, ran_s=3.1, waited_s=1.0, others_s=0.0) == 3.0
    assert counted_s(wall_s=3.0, ran_s=0.0, waited_s=0.0, others_s=0.0) == 3.0


@pytest.fixture
def one_core():
    """Pin this thread, and the processes and threads that it starts, to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def neighbour(one_core):
    """A busy process on the core that this process has not started: its own parent has ended."""
    start = f"import os\nif not os.fork():\n    print(os.getpid(), flush=True)\n    os.close(1)\n    {SPIN}"
    started = subprocess.run([sys.executable, "-S", "-c", start], stdout=subprocess.PIPE, check=True)
    yield
    os.kill(int(started.stdout), signal.SIGKILL)


def work():
    """Use WORK_S seconds of CPU time."""
    until_s = time.thread_time() + WORK_S
    while time.thread_time() < until_s:
        pass


def timed(action):
    """Return the counted seconds and those of the wall clock."""
    measure, start_s = undisturbed(action, time.perf_counter), time.perf_counter()
    return measure(), time.perf_counter() - start_s


def test_beside_a_busy_process_the_time_is_about_the_cpu_time(neighbour):
    counted, wall = timed(work)
    assert wall > 1.3 * counted
    assert counted >= WORK_S


def test_a_sleep_counts(neighbour):
    """A wait before the sleep may be missing, because the timer was already running."""
    counted, _ = timed(lambda: time.sleep(WORK_S))
    assert counted > 0.8 * WORK_S


def test_time_that_an_own_thread_takes_on_the_core_counts(one_core):
    """The thread runs C code without the interpreter's lock. Threads that share the lock never wait for a core."""
    stop = threading.Event()
    numbers = bytearray(1 << 20)

    def crowd():
        while not stop.is_set():
            zlib.crc32(numbers)  # releases the interpreter's lock

    def work_side_by_side():
        until_s = time.process_time() + 2 * WORK_S
        while time.process_time() < until_s:
            pass

    crowding = threading.Thread(target=crowd)
    crowding.start()
    try:
        counted, _ = timed(work_side_by_side)
    finally:
        stop.set()
        crowding.join()
    assert counted > 0.9 * 2 * WORK_S


def test_cpu_time_of_ended_children_counts(one_core):
    code = f"import time\nuntil_s = time.thread_time() + {WORK_S}\nwhile time.thread_time() < until_s: pass"

    def handed_on():
        with subprocess.Popen([sys.executable, "-S", "-c", code]):
            work()

    counted, _ = timed(handed_on)
    assert counted > 0.9 * 2 * WORK_S


def test_each_call_runs_the_action_once():
    calls = []
    measure = undisturbed(lambda: calls.append(1), time.perf_counter)
    assert all(measure() > 0 for _ in range(3))
    assert len(calls) == 3


def test_without_the_kernels_counter_the_wall_clock_counts(monkeypatch, one_core):
    def refuse(*_, **__):
        raise OSError

    monkeypatch.setattr("builtins.open", refuse)
    ticks = iter([10.0, 14.0])
    measure = undisturbed(lambda: None, lambda: next(ticks))
    assert measure() == 4.0


def test_a_thread_that_has_ended_hides_no_other(monkeypatch):
    """The kernel listed a thread that is gone when its counter is read."""
    own, listed = os.getpid(), os.listdir
    monkeypatch.setattr(clocks.os, "listdir", lambda path: ["999999", *listed(path)])
    assert scheduling(own)[1] == os.sched_getaffinity(0)
    assert descendants_s(own) >= 0
    assert process_s(4_000_000) == 0
