"""Which calls are taken for a wait for another replica, and which are not."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time

import pytest
import torch

from dpbench.parallel import sequential as watchdog
from dpbench.parallel.sequential import SequentialRun, WatchedThread
from dpbench.parallel.thread_state import ThreadState
from dpbench.parallel.threads import ThreadPools

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a thread waits for")

CHECKS = 20
NEVER = 10**9


class Release:
    """Ends a call that waits: the ways in which one thread may wait for another."""

    def __init__(self):
        self.event, self.queue, self.lock, self.condition = (
            threading.Event(),
            queue.SimpleQueue(),
            threading.Lock(),
            threading.Condition(),
        )
        self.barrier = threading.Barrier(2)
        self.read_end, self.write_end = os.pipe()
        self.lock.acquire()

    def open(self):
        self.event.set()
        self.queue.put(None)
        self.lock.release()
        with self.condition:
            self.condition.notify_all()
        self.barrier.abort()
        os.write(self.write_end, b"\n")

    def close(self):
        os.close(self.read_end)
        os.close(self.write_end)


def watch(call, checks, until_rescued=False, around=lambda run: run()):
    """The run of `call` and another one, after so many checks during `call`."""
    release, begun, made = Release(), threading.Event(), queue.SimpleQueue()

    def lane():
        calls = [lambda: (begun.set(), call(release)), int]
        run = SequentialRun(calls, [], ThreadState.of_this_thread(), ThreadPools())
        made.put(run)
        around(run.run)

    thread = threading.Thread(target=lane)
    thread.start()
    run = made.get()
    begun.wait()
    for _ in range(checks):
        time.sleep(0.02)
        run.check()
        if until_rescued and run.rescue is not None:
            break
    release.open()
    thread.join()
    release.close()
    return run


def meet(release):
    with contextlib.suppress(threading.BrokenBarrierError):
        release.barrier.wait()


def wait_for_condition(release):
    with release.condition:
        release.condition.wait(timeout=600)


WAITS = {
    "barrier": meet,
    "condition": wait_for_condition,
    "event": lambda release: release.event.wait(),
    "lock": lambda release: release.lock.acquire(),
    "queue": lambda release: release.queue.get(),
}


@pytest.fixture
def _never_slow(monkeypatch):
    monkeypatch.setattr(watchdog, "SLOW_CHECKS", NEVER)


@pytest.mark.usefixtures("_never_slow")
@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_for_another_thread_is_seen_while_the_process_is_idle(kind):
    assert watch(WAITS[kind], 3000, until_rescued=True).rescue is not None


def compute(release):
    x = torch.randn(1500, 1500)
    while not release.event.is_set():
        x = torch.mm(x, x).clamp_(-1, 1)


def poll(release):
    while not release.event.is_set():
        time.sleep(0.001)


def wait_for_a_child(release):
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=release.read_end, stderr=subprocess.DEVNULL
    ) as child:
        child.wait()


def wait_while_another_thread_works(release):
    worker = threading.Thread(target=compute, args=(release,))
    worker.start()
    worker.join()


def wait_in_a_compiler(release):
    exec("event.wait()", {"__name__": "torch._dynamo.convert_frame", "event": release.event})


NO_WAITS = {
    "compute": compute,
    "poll": poll,
    "sleep": lambda release: time.sleep(0.03 * CHECKS),
    "read": lambda release: os.read(release.read_end, 1),
    "child": wait_for_a_child,
    "another thread works": wait_while_another_thread_works,
    "compiler": wait_in_a_compiler,
}


@pytest.mark.usefixtures("_never_slow")
@pytest.mark.parametrize("kind", NO_WAITS)
def test_other_calls_are_not_taken_for_a_wait(kind):
    assert watch(NO_WAITS[kind], CHECKS).rescue is None


@pytest.mark.usefixtures("_never_slow")
def test_a_lock_that_is_free_again_soon_is_no_wait():
    assert watch(WAITS["lock"], watchdog.WAITING_CHECKS).rescue is None


@pytest.mark.parametrize("kind", ["compute", "poll"])
def test_a_slow_call_is_rescued(kind, monkeypatch):
    monkeypatch.setattr(watchdog, "SLOW_CHECKS", CHECKS)
    monkeypatch.setattr(watchdog, "FIRST_FACTOR", 1)
    assert watch(NO_WAITS[kind], CHECKS + 1).rescue is not None


def test_a_slow_compiler_is_not_rescued(monkeypatch):
    monkeypatch.setattr(watchdog, "SLOW_CHECKS", 1)
    assert watch(wait_in_a_compiler, CHECKS).rescue is None


@pytest.mark.usefixtures("_never_slow")
def test_a_debugger_around_the_forward_hides_no_wait():
    def under_debugger(run):
        exec("run()", {"__name__": "bdb", "run": run})

    assert watch(meet, 3000, until_rescued=True, around=under_debugger).rescue is not None


def test_a_thread_that_has_ended_shows_nothing():
    watched = []
    thread = threading.Thread(target=lambda: watched.append(WatchedThread()))
    thread.start()
    thread.join()
    assert not watched[0].waits_for_a_lock()
    assert not watched[0].is_on_its_own(until="")
