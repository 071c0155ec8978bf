"""Time less what other processes took, and no other time."""

import os
import subprocess
import sys
import threading
import time
import zlib

import pytest

from dpbench.measure.undisturbed import counted_s, undisturbed

SPIN = "while True: pass"
WORK_S = 0.3


def test_waits_for_a_core_are_taken_off_the_wall_clock():
    assert counted_s(wall_s=3.0, ran_s=1.0, waited_s=1.5, other_threads_s=0.0) == 1.5


def test_waits_while_other_threads_of_the_process_ran_are_its_own_doing():
    assert counted_s(wall_s=3.0, ran_s=1.0, waited_s=1.5, other_threads_s=0.5) == 2.0
    assert counted_s(wall_s=3.0, ran_s=1.0, waited_s=1.5, other_threads_s=9.0) == 3.0


def test_no_less_than_the_thread_ran_and_no_more_than_the_wall_clock():
    """The books of the kernel differ at times."""
    assert counted_s(wall_s=3.0, ran_s=2.5, waited_s=1.0, other_threads_s=0.0) == 2.5
    assert counted_s(wall_s=3.0, ran_s=3.1, waited_s=1.0, other_threads_s=0.0) == 3.0
    assert counted_s(wall_s=3.0, ran_s=0.0, waited_s=0.0, other_threads_s=0.0) == 3.0


@pytest.fixture
def one_core():
    """This thread, and what it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def neighbour(one_core):
    with subprocess.Popen([sys.executable, "-S", "-c", SPIN]) as spinner:
        yield
        spinner.kill()


def work():
    """So much CPU time, however long that takes."""
    until_s = time.thread_time() + WORK_S
    while time.thread_time() < until_s:
        pass


def timed(action):
    """As counted, and by the wall clock."""
    measure, start_s = undisturbed(action, time.perf_counter), time.perf_counter()
    return measure(), time.perf_counter() - start_s


def test_beside_a_process_that_spins_the_time_is_about_that_of_the_cpu(neighbour):
    counted, wall = timed(work)
    assert wall > 1.3 * counted
    assert counted >= WORK_S


def test_a_sleep_is_counted_in_full(neighbour):
    """But for what it waited before it slept: the alarm clock was set already."""
    counted, _ = timed(lambda: time.sleep(WORK_S))
    assert counted > 0.8 * WORK_S


def test_a_thread_of_its_own_that_crowds_the_core_is_counted(one_core):
    """In C, as Python's own threads take turns without any wait for a core."""
    stop = threading.Event()
    numbers = bytearray(1 << 20)

    def crowd():
        while not stop.is_set():
            zlib.crc32(numbers)  # lets go of the interpreter's lock

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


def test_it_answers_again_and_again_and_calls_the_action_once_each_time():
    calls = []
    measure = undisturbed(lambda: calls.append(1), time.perf_counter)
    assert all(measure() > 0 for _ in range(3))
    assert len(calls) == 3


def test_where_the_kernel_does_not_tell_it_is_the_wall_clock(monkeypatch, one_core):
    def refuse(*_, **__):
        raise OSError

    monkeypatch.setattr("builtins.open", refuse)
    ticks = iter([10.0, 14.0])
    measure = undisturbed(lambda: None, lambda: next(ticks))
    assert measure() == 4.0
