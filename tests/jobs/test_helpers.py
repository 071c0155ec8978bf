"""Work that a side hands to another process on its core counts as the side's and no other's, with any priority."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from statistics import median

import psutil
import pytest

from dpbench.engine.messages import SideName
from dpbench.jobs import lockstep_child
from dpbench.jobs.forks import SideError, forked, pin, sender, take_blocks
from dpbench.measure.undisturbed import descendants_s, undisturbed
from tests.jobs.test_lockstep import job

WORK_S = 0.1
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
HELPER = """
import os, sys, time
if sys.argv[2] != "itself" and os.fork():
    os._exit(0)
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5)) if sys.argv[1] == "fifo" else None
except OSError:
    pass
for line in sys.stdin:
    until_s = time.thread_time() + {work_s}
    while time.thread_time() < until_s:
        pass
    print(flush=True)
"""


@pytest.fixture
def no_subreaper():
    before = psutil.Process().children()
    yield
    for orphan in set(psutil.Process().children()) - set(before):
        orphan.kill()
        orphan.wait(10)
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


def side(scheduled, started_by, gives_up_orphans):
    """Return what a side does: half of its step's work itself, and half in a helper that lives on."""

    def serve(pipe):
        pin((max(os.sched_getaffinity(0)),))
        if gives_up_orphans:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        command = [sys.executable, "-S", "-c", HELPER.format(work_s=WORK_S), scheduled, started_by]
        helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def step():
            print("go", file=helper.stdin, flush=True)
            until_s = time.thread_time() + WORK_S
            while time.thread_time() < until_s:
                pass
            helper.stdout.readline()

        step()
        timed_s = undisturbed(step, time.perf_counter)
        sender(pipe)({"steps_s": [1.0]})
        take_blocks(pipe, lambda _: timed_s())

    return serve


@pytest.mark.usefixtures("no_subreaper")
@pytest.mark.parametrize("scheduled", ["fifo", "usual"])
@pytest.mark.parametrize(("started_by", "gives_up_orphans"), [("itself", False), ("ended", False), ("ended", True)])
def test_a_helpers_work_counts(scheduled, started_by, gives_up_orphans):
    with forked(SideName.HEAD, side(scheduled, started_by, gives_up_orphans), 30.0) as fork:
        fork.receive()
        block, *_ = fork.take(3)
        assert descendants_s(os.getpid()) > 3 * 2 * WORK_S
    assert min(block) > 0.9 * 2 * WORK_S


STEP_S, CORE = 0.004, max(os.sched_getaffinity(0))


def run(seconds):
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def spin_while_head_sleeps(taken):
    if not taken and not os.fork():
        while True:
            pass


def work_later(taken):
    """A thread does the half of each step after its block, while other sides are measured."""
    threading.Thread(target=lambda: (time.sleep(STEP_S), run(STEP_S))).start()


def hand_on(taken):
    """Each process of a chain works for 2 ms and starts the next one. The kernel forgets the time of each, and head
    does not sleep: it waits for the core, which the chain has by its priority.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    if not os.fork():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
        for _ in range(4):
            run(STEP_S / 2)
            if os.fork():
                os._exit(0)
        os.write(writer, b"x")
        os._exit(0)
    while not select.select([reader], [], [], 0)[0]:
        pass
    os.close(reader)
    os.close(writer)


def make_the_others_idle(taken):
    if not taken:
        for side in children_of(os.getppid()) - {os.getpid()}:
            os.sched_setscheduler(side, os.SCHED_IDLE, os.sched_param(0))


def slow_the_others_down(taken):
    if not taken:
        for side in children_of(os.getppid()) - {os.getpid()}:
            os.setpriority(os.PRIO_PROCESS, side, 10)


def leave_the_core(taken):
    os.sched_setaffinity(0, range(os.cpu_count()))


def nothing(taken):
    pass


def children_of(pid):
    return set(map(int, open(f"/proc/{pid}/task/{pid}/children").read().split()))


def ratio_and_note(monkeypatch, of_head):
    """Head's time by base's in a real round of steps of 4 ms; `of_head` gets the steps taken before, in each step."""

    def serve_as(name):
        def serve(pipe):
            steps = []

            def step():
                if name is SideName.HEAD and len(steps) > 1:
                    of_head(len(steps) - 2)
                steps.append(run(STEP_S))

            timed_s = undisturbed(step, time.perf_counter)
            pin((CORE,))
            timed_s()
            sender(pipe)({"steps_s": [timed_s()]})
            take_blocks(pipe, lambda _: timed_s())

        return forked(name, serve, 30.0)

    monkeypatch.setattr(lockstep_child, "_forked", lambda job, name: serve_as(name))
    asked = job("", "", blocks=30, block_s=STEP_S, checked=False)
    times_s, note, _ = lockstep_child._alternate(asked, lockstep_child._side_by_side)
    return median(map(sum, times_s[SideName.HEAD])) / median(map(sum, times_s[SideName.BASE])), note


@pytest.mark.usefixtures("no_subreaper")
@pytest.mark.parametrize("of_head", [spin_while_head_sleeps, work_later, hand_on])
def test_work_that_head_hides_counts_as_heads(monkeypatch, of_head):
    if of_head is hand_on and os.geteuid():
        pytest.skip("only root can give the chain a higher priority")
    ratio, note = ratio_and_note(monkeypatch, of_head)
    assert ratio > 1.3
    assert "which counts as the steps' time" in note


@pytest.mark.usefixtures("no_subreaper")
@pytest.mark.parametrize("of_head", [make_the_others_idle, slow_the_others_down, leave_the_core])
def test_sides_with_other_priorities_or_cores_are_not_compared(monkeypatch, of_head):
    with pytest.raises(SideError, match="other priorities or cores") as caught:
        ratio_and_note(monkeypatch, of_head)
    assert caught.value.side is SideName.HEAD


@pytest.mark.usefixtures("no_subreaper")
def test_equal_steps_are_compared_as_they_are(monkeypatch):
    ratio, note = ratio_and_note(monkeypatch, nothing)
    assert note is None
    assert 0.8 < ratio < 1.25
