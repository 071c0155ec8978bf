"""Ctrl-C at any time, once or often: one line, exit code 130, no process left."""

import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from tests.cli.conftest import ROOT
from tests.engine.conftest import marked_processes, wait_until

MARK = "DPBENCH_TEST_MARK"
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
open("here", "w").close()
time.sleep(1000)
"""


@pytest.fixture
def start(tmp_path):
    mark = uuid.uuid4().hex

    def run(*words):
        environment = os.environ | {"PYTHONPATH": str(ROOT), MARK: mark, "GIT_DIR": str(tmp_path / "none")}
        command = [sys.executable, "-P", "-m", "dpbench", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes)

    yield run
    wait_until(lambda: not marked_processes(mark))


def has_imported(pid, word):
    with open(f"/proc/{pid}/maps") as maps:
        return word in maps.read()


@pytest.mark.parametrize("often", [1, 5])
def test_while_it_imports(start, often):
    process = start("compare")
    wait_until(lambda: has_imported(process.pid, "pydantic_core"))  # while `dpbench.cli` is imported
    for _ in range(often):
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)
    out, errors = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert errors.startswith("dpbench: interrupted; ")
    assert errors.count("\n") == 1


def test_often_while_a_child_runs(start, tmp_path):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    process = start("compare", "--workloads", "stubborn:factory")
    wait_until((tmp_path / "here").exists)
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, errors = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert errors == "dpbench: interrupted; what was recorded so far is kept\n"
