import ctypes
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from dpbench.engine import launch as launch_module
from dpbench.engine import process_tree
from dpbench.engine.launch import launch

LONG_S = 60.0
PREAMBLE = """
import os, signal, subprocess, sys, time
record_fd, parent_pid = int(sys.argv[2]), int(sys.argv[4])
"""
# Leaves a process in a session of its own. It ignores SIGTERM and holds both pipes, and its parent has ended.
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.write(record_fd, b"daemon here")
        time.sleep(1000)
    os._exit(0)
os.wait()
"""
# A grandchild that runs another program.
GRANDCHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True)\n"
# Five processes, each the child of the one before.
CHAIN = """
if os.fork() == 0:
    for _ in range(4):
        if os.fork() > 0:
            break
    time.sleep(1000)
"""


def run(code, stdin_text="", timeout_s=LONG_S, stop_fd=None):
    return launch([sys.executable, "-c", PREAMBLE + code], stdin_text, timeout_s, stop_fd)


def test_request_and_response():
    request = "ü" * (1 << 20)  # far more than a pipe holds
    end = run("os.fdopen(record_fd, 'w').write(sys.stdin.read()); print('said')", request)
    assert (end.returncode, end.record.decode(), end.tail) == (0, request, b"said\n")
    assert end.timed_out_after_s is None
    assert end.duration_s > 0


def test_the_child_gets_its_parents_pid_and_a_session_of_its_own():
    end = run("print(parent_pid, os.getsid(0) == os.getpid())")
    assert end.tail.decode().split() == [str(os.getpid()), "True"]


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("sys.exit(3)", 3),
        ("raise ValueError('raised')", 1),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_the_return_code_says_how_the_child_ended(code, returncode):
    assert run(code).returncode == returncode


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(1000)",
        "os.close(record_fd); os.close(1); os.close(2); time.sleep(1000)",  # closed pipes do not end the wait
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)",
        "while True: print('chatter', flush=True)",
    ],
)
def test_a_hanging_child_ends_at_the_time_limit(code):
    end = run(code, timeout_s=0.5)
    assert (end.timed_out_after_s, end.returncode) == (0.5, -signal.SIGKILL)


def test_the_caller_can_stop_a_child():
    reader, writer = os.pipe()
    threading.Timer(0.5, os.write, (writer, b"x")).start()
    end = run("time.sleep(1000)", stop_fd=reader)
    os.close(reader)
    os.close(writer)
    assert (end.is_stopped, end.timed_out_after_s, end.returncode) == (True, None, -signal.SIGKILL)
    assert 0.4 < end.duration_s < 20


def test_half_a_record_is_kept():
    end = run("os.write(record_fd, b'{\"schema\": 1, '); os.kill(os.getpid(), signal.SIGKILL)")
    assert (end.record, end.returncode) == (b'{"schema": 1, ', -signal.SIGKILL)


def test_the_last_bytes_are_read_after_the_childs_end(monkeypatch):
    monkeypatch.setattr(launch_module, "_watch", lambda processes, *_: (processes[0].wait(), None))
    end = run("os.write(record_fd, b'answer'); os.write(1, b'said')")
    assert (end.record, end.tail, end.timed_out_after_s) == (b"answer", b"said", None)


def test_long_output_does_not_block_and_its_end_is_kept():
    end = run("sys.stderr.write('x' * (10 << 20)); sys.stderr.write('the end')")
    assert end.returncode == 0
    assert end.tail == b"x" * ((64 << 10) - len("the end")) + b"the end"


def test_the_beginning_of_an_endless_record_is_kept(monkeypatch):
    monkeypatch.setattr(launch_module, "RECORD_BYTES", 1000)
    end = run("os.fdopen(record_fd, 'wb').write(b'begin' + b'x' * (5 << 20))")
    assert (end.returncode, end.record) == (0, b"begin" + b"x" * 995)


@pytest.mark.parametrize("ending", ["", "os.kill(os.getpid(), signal.SIGSEGV)", "time.sleep(1000)"])
@pytest.mark.parametrize("leftover", [DAEMON, GRANDCHILD, CHAIN, DAEMON + CHAIN + GRANDCHILD])
def test_no_descendant_is_left(leftover, ending):
    before = psutil.Process().children(recursive=True)
    run(leftover + ending, timeout_s=LONG_S if "sleep" not in ending else 1.0)
    assert psutil.Process().children(recursive=True) == before  # the `mark` fixture checks all other processes


def test_ctrl_c_leaves_no_process():
    code = DAEMON + GRANDCHILD + "os.kill(parent_pid, signal.SIGINT); time.sleep(1000)"
    with pytest.raises(KeyboardInterrupt):
        run(code)


def test_a_process_that_ran_before_goes_on():
    older = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        run(GRANDCHILD)
        assert older.poll() is None
    finally:
        older.kill()
        older.wait()


@pytest.mark.parametrize("subreaper", [0, 1])
def test_no_file_stays_open_and_the_subreaper_flag_is_restored(subreaper):
    libc, value = ctypes.CDLL(None), ctypes.c_int()
    assert libc.prctl(36, subreaper, 0, 0, 0) == 0
    open_before = sorted(os.listdir("/proc/self/fd"))
    try:
        run("")
        with pytest.raises(FileNotFoundError):
            launch(["/no/such/program"], "", LONG_S)
        assert libc.prctl(37, ctypes.byref(value), 0, 0, 0) == 0
    finally:
        libc.prctl(36, 0, 0, 0, 0)
    assert (sorted(os.listdir("/proc/self/fd")), value.value) == (open_before, subreaper)


def test_a_process_that_survives_sigkill_is_reported(monkeypatch):
    kill, before = psutil.Process.kill, psutil.Process().children()
    monkeypatch.setattr(psutil.Process, "kill", lambda self: None)
    monkeypatch.setattr(process_tree, "GRACE_S", 0.2)
    with pytest.raises(process_tree.UnkillableError, match=r"process \d+ is still there 0\.2 s after SIGKILL"):
        run(GRANDCHILD)
    for orphan in set(psutil.Process().children()) - set(before):
        kill(orphan)
        orphan.wait()


def test_out_of_memory_kills_are_counted(monkeypatch):
    assert run("").oom_kills >= 0
    counts = iter([3, 5])
    monkeypatch.setattr(launch_module, "oom_kills", lambda: next(counts))
    assert run("").oom_kills == 2
