import subprocess
import sys

from tests.run.conftest import marked_processes, wait_until

CHILD = """
import os, sys, time
from dpbench.run.process_tree import die_with_parent
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
