import platform
import subprocess
import sys

import pytest

from dpbench.cases.machine_info import MachineInfo
from dpbench.engine.interpret import ChildError
from dpbench.engine.launch import Exit
from dpbench.engine.messages import ProbeRequest
from dpbench.jobs.probe import ask_machine
from tests.fakes import ended

MACHINE = MachineInfo(python="3.11", torch="2.13.0", cpu_model="fake", cores=2, memory_bytes=1)
FACTORIES = """
import ctypes
from dpbench.workloads.resolve import resolve
from dpbench.cases.names import Data
def good(): return resolve("mlp/tiny", Data.RANDOM)
def crashing(): ctypes.string_at(0)
def raising(): raise ValueError("raised")
"""


class FakeProbe:
    """Reports MACHINE. A request with a workload in `deadly` ends as its value says; the key "" means any request."""

    def __init__(self, deadly):
        self.deadly, self.requests, self.timeouts_s = deadly, [], []

    def __call__(self, command, stdin_text, timeout_s):
        workloads = ProbeRequest.model_validate_json(stdin_text).workloads
        self.requests.append(workloads)
        self.timeouts_s.append(timeout_s)
        for name, end in self.deadly.items():
            if name in workloads or name == "":
                return end
        machine = MACHINE.model_copy(update={"workload_errors": dict.fromkeys(workloads)})
        return ended(0, machine.model_dump_json().encode())


def test_one_child_loads_all_workloads():
    probe = FakeProbe({})
    assert ask_machine(("a:f", "b:g"), launch=probe).workload_errors == {"a:f": None, "b:g": None}
    assert probe.requests == [("a:f", "b:g")]


def test_the_workload_that_kills_the_child_is_found():
    probe = FakeProbe({"b:g": ended(-11)})
    machine = ask_machine(("a:f", "b:g"), launch=probe)
    assert machine.workload_errors == {"a:f": None, "b:g": "loading it failed: killed by SIGSEGV"}
    assert machine.cores == 2


def test_the_time_limit_holds_where_workloads_are_loaded():
    probe = FakeProbe({"b:g": Exit("", 12.0, -9, timed_out_after_s=12.0)})
    machine = ask_machine(("a:f", "b:g"), launch=probe, timeout_s=12.0)
    assert machine.workload_errors == {"a:f": None, "b:g": "loading it failed: not done after 12 s"}
    assert probe.timeouts_s == [12.0, 120.0, 12.0, 12.0]


def test_a_child_that_fails_without_any_workload_raises():
    probe = FakeProbe({"": ended(1, tail=b"No module named 'psutil'\n")})
    with pytest.raises(ChildError, match=r"exit status 1\nNo module named 'psutil'"):
        ask_machine(launch=probe)
    assert probe.requests == [()]


def test_this_machine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    machine = ask_machine(("mine:good", "mine:raising", "mine:absent"))
    assert (machine.python, "gloo" in machine.backends, machine.torch_error) == (platform.python_version(), True, None)
    assert machine.cores >= 1
    assert machine.workload_errors.pop("mine:good") is None
    assert {name: name in error for name, error in machine.workload_errors.items()} == {
        "mine:raising": True,
        "mine:absent": True,
    }


def test_a_factory_that_crashes_its_child(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    machine = ask_machine(("mine:crashing",))
    assert machine.torch is not None
    assert machine.workload_errors == {"mine:crashing": "loading it failed: killed by SIGSEGV"}


def test_the_parent_imports_no_torch():
    code = "import sys; from dpbench.jobs.probe import ask_machine; ask_machine(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
