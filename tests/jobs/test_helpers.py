"""Work that a side hands to a process of its own on its core counts as the side's, with any priority."""

import ctypes
import os
import subprocess
import sys
import time

import psutil
import pytest

from dpbench.engine.messages import SideName
from dpbench.jobs.forks import forked, pin, sender, take_blocks
from dpbench.measure.undisturbed import descendants_s, undisturbed

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
        orphan.wait(10)  # its pipe has ended
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


def side(scheduled, started_by, gives_up_orphans):
    """Return what a side does: half of its step's work itself, and half in a helper that lives on."""

    def serve(pipe, _):
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
        block, _ = fork.take(3)
        assert descendants_s(os.getpid()) > 3 * 2 * WORK_S
    assert min(block) > 0.9 * 2 * WORK_S
