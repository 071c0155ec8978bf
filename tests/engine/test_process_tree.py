import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.engine.conftest import marked_processes, wait_until

CHILD = """
import os, sys, time
from dpbench.engine.process_tree import die_with_parent
die_with_parent(int(sys.argv[1]))
print('armed', flush=True)
time.sleep(1000)
"""


def test_a_child_whose_parent_has_ended_exits_at_once():
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_child_ends_when_its_parent_is_killed(mark):
    parent_code = (
        "import os, subprocess, sys, time;"
        f"subprocess.Popen([sys.executable, '-c', {CHILD!r}, str(os.getpid())], start_new_session=True);"
        "time.sleep(1000)"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE)
    assert parent.stdout.readline() == b"armed\n"
    assert len(marked_processes(mark)) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not marked_processes(mark))


DAEMON = """
import os, sys, time
from dpbench.engine.process_tree import die_with_parent
die_with_parent(int(sys.argv[4]))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            os.close(fd)
        time.sleep(1000)
    os._exit(0)
os.wait()
open("daemon", "w").close()
time.sleep(1000)
"""


def lives(pid):
    """Whether a process has not ended. This one may have adopted it, and does not reap it."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_of_a_child_ends_when_the_parent_is_killed(mark, tmp_path, number):
    parent_code = f"""
import sys
from dpbench.engine.launch import launch
launch([sys.executable, "-c", {DAEMON!r}], "", 1000)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, "-c", parent_code], cwd=tmp_path, env=environment)
    wait_until((tmp_path / "daemon").exists)
    assert len(marked_processes(mark)) == 3
    watchers = children_of(parent.pid, "watcher.py")
    parent.send_signal(number)
    parent.wait()
    wait_until(lambda: not marked_processes(mark))
    wait_until(lambda: not any(map(lives, watchers)))


def children_of(pid, word):
    pids = [child.pid for child in psutil.Process(pid).children() if word in " ".join(child.cmdline())]
    assert len(pids) == 1
    return pids
