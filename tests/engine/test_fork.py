"""A fork's record, output and end; it is killed if it is late, and it dies with its parent."""

import os
import signal
import subprocess
import sys
import time

import psutil

from dpbench.engine.fork import run_in_forks
from tests.engine.conftest import wait_until


def works(record_fd):
    os.write(record_fd, b"done")
    os.write(1, b"said")


def raises(_):
    raise ValueError("planted")


def sleeps(_):
    time.sleep(1000)


def test_records_outputs_and_ends_are_in_the_order_of_the_works(monkeypatch):
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)  # pytest's has no descriptor
    late, done, failed = run_in_forks([sleeps, works, raises], 2.0, at_once=2)
    assert (done.record, done.tail, done.returncode, done.timed_out_after_s) == (b"done", b"said", 0, None)
    assert (failed.record, failed.returncode, failed.timed_out_after_s) == (b"", 1, None)
    assert failed.tail.endswith(b"ValueError: planted\n")
    assert (late.returncode, late.timed_out_after_s) == (-signal.SIGKILL, 2.0)


PARENT = """
import time
from dpbench.engine.fork import fork
print(fork(lambda: time.sleep(1000)), flush=True)
time.sleep(1000)
"""


def test_a_fork_dies_with_its_parent():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        forked = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.5)  # until it has asked the kernel
        parent.kill()
    wait_until(lambda: not forked.is_running() or forked.status() == psutil.STATUS_ZOMBIE)
