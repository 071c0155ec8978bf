"""The few attacks that need real processes: factories that break their process, and kills."""

import json
import signal
import subprocess

import pytest

from tests.cli.conftest import dpbench_process  # noqa: F401  # a fixture
from tests.cli.repositories import git
from tests.engine.conftest import wait_until
from tests.hostile.attack import assert_unharmed, call, control_characters, new_folder, one_line
from tests.hostile.files import gate_files
from tests.hostile.test_interrupts import start  # noqa: F401  # a fixture

FACTORIES = """
import ctypes, os, sys
import torch
from torch import nn
from torch.nn import functional
from dpbench.workloads.workload import Batch, Workload

class Breaking(nn.Linear):
    def __init__(self, act):
        super().__init__(3, 2)
        self.act = act
    def forward(self, x):
        if "dpbench.jobs.round_child" in sys.argv[0].replace("/", "."):  # not yet while it is checked
            self.act()
        return super().forward(x)

def workload(act):
    def draw(size, generator):
        return Batch((torch.randn(size, 3, generator=generator),), torch.randint(2, (size,), generator=generator))
    return Workload(model=lambda: Breaking(act), batch=draw, loss=functional.cross_entropy)

def segfaults(): return workload(lambda: ctypes.string_at(0))
def exits(): return workload(lambda: os._exit(0))
def prints(): return workload(lambda: sys.exit("\\x1b]0;owned\\x07"))
"""


def test_a_forward_that_breaks_its_process(dpbench_process, tmp_path):  # noqa: F811
    (tmp_path / "broken.py").write_text(FACTORIES)
    names = ",".join(f"broken:{name}" for name in ("segfaults", "exits", "prints"))
    done = dpbench_process(
        "compare", "--workloads", names, "--variants", "single", "--rounds", "1", "--budget", "2s", "--json"
    )
    assert done.returncode == 1, done.stderr
    reasons = {row["workload"]: row for row in json.loads(done.stdout)["cases"] if row.get("outcome") == "crashed"}
    assert len(reasons) == 3, done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    (file,) = tmp_path.glob("results/runs/*.jsonl")
    recorded = {fields["case"]["workload"]: fields["reason"] for fields in map(json.loads, file.open())}
    assert recorded["broken:segfaults"].startswith("killed by SIGSEGV")
    assert recorded["broken:exits"].startswith("ended without a record")
    assert "\x1b" not in recorded["broken:prints"]


@pytest.mark.parametrize(
    ("name", "error"), [("nowhere.to:be", "ModuleNotFoundError"), ("evil:factory", "ValueError: ]0;owned")]
)
def test_a_factory_that_is_missing_or_raises(dpbench_process, tmp_path, name, error):  # noqa: F811
    (tmp_path / "evil.py").write_text("def factory():\n    raise ValueError('\x1b]0;owned\x07')\n")
    done = dpbench_process("compare", "--rounds", "1", "--workloads", name)
    assert (done.returncode, done.stdout, one_line(done.stderr)) == (2, "", True), done.stderr
    assert not control_characters(done.stderr)
    assert f"workloads: '{name}'" in done.stderr
    assert error in done.stderr
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"evil.py"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_counting_is_killed(start, tmp_path, number):  # noqa: F811
    process = start("counts", "--update")
    wait_until(lambda: len(children_of(process.pid)) >= 1)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert list(tmp_path.iterdir()) == []


def children_of(pid):
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, check=False).stdout.split()


@pytest.mark.parametrize("head", ["HEAD", "HEAD^2", "side"])
def test_a_merge_commit_is_judged(head):
    with new_folder(gate_files()) as folder:
        git(folder, "checkout", "--quiet", "-b", "side", "HEAD~1")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "aside \x1b[31m")
        git(folder, "checkout", "--quiet", "main")
        git(folder, "merge", "--quiet", "--no-ff", "-m", "merged \x1b[31m", "side")
        answer = call(("gate", "--base=HEAD^1", f"--head={head}", "--tiers=0"), folder)
    assert_unharmed(answer)
    assert answer.code == 0, answer
