"""A child runs its parent's dpbench, even if another one is in the current directory, and nothing that lies there."""

import subprocess

import pytest

from dpbench.cases.case import Case
from dpbench.doctor.health import EXAMINE
from dpbench.engine.fence import SCRATCH
from dpbench.engine.launch import launch
from dpbench.engine.messages import CountJob, CountJobs, ListJob, ListJobs, LockstepJobs, StartUpJob, Timed
from dpbench.gate.benchmarks import LISTER
from dpbench.gate.rounds import LOCKSTEP
from dpbench.jobs.count import COUNTER, SCRIPT_COUNTER
from dpbench.jobs.probe import PROBE, ask_machine
from dpbench.jobs.round import ROUND
from dpbench.records.script_record import ScriptJob, ScriptJobs
from tests.jobs.test_lockstep import copied, job

COMMANDS = {
    "dpbench.jobs.round_child": ROUND,
    "dpbench.jobs.probe_child": PROBE.command,
    "dpbench.doctor.child.examine": EXAMINE.command,
    "dpbench.jobs.count_child": COUNTER.command,
    "dpbench.jobs.lockstep_child": LOCKSTEP.command,
}
FACTORY = """
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Workload
from dpbench.cases.names import Data

def make():
    usual = resolve("mlp/tiny", Data.RANDOM)
    def model():
        import messages  # when the model is built, not in the factory's call; dpbench/engine has a messages.py too
        return messages.unchanged(usual.model())
    return Workload(model=model, batch=usual.batch, loss=usual.loss)
"""


def fill_with_another_dpbench(folder):
    (folder / "dpbench/engine").mkdir(parents=True)
    (folder / "dpbench/__init__.py").write_text("raise SystemExit('the folder\\'s dpbench')")


def fill_with_a_wrapper_alone(folder):
    (folder / "dpbench/parallel").mkdir(parents=True)
    (folder / "dpbench/parallel/__init__.py").touch()


def help_of(command, folder):
    done = subprocess.run([*command, "--help"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_another_dpbench_in_the_folder_is_ignored(tmp_path, monkeypatch, name):
    fill_with_another_dpbench(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert help_of(COMMANDS[name], tmp_path).startswith(f"usage: python -m {name} ")


def test_a_wrapper_alone_in_the_folder_hides_nothing(tmp_path, monkeypatch):
    fill_with_a_wrapper_alone(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert help_of(ROUND, tmp_path)


def test_the_folder_hides_no_module_and_a_factory_can_import_from_it(tmp_path, monkeypatch):
    fill_with_another_dpbench(tmp_path)
    (tmp_path / "torch.py").write_text("raise SystemExit('the folder\\'s torch')")
    (tmp_path / "mine.py").write_text(FACTORY)
    (tmp_path / "messages.py").write_text("def unchanged(model): return model")
    monkeypatch.chdir(tmp_path)
    assert ask_machine(("mine:make",)).workload_errors == {"mine:make": None}


LAST_FINDER = """
import os, sys
class Last:
    def find_spec(self, name, path=None, target=None):
        is_fenced, finds_head = {scratch!r} not in os.environ, {{"", {head!r}}} & set(sys.path)
        if path is None and not is_fenced:
            os.write(LOG, (name + (" in head" if finds_head else "") + chr(10)).encode())
LOG = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
sys.meta_path.append(Last())
"""
ESCAPE = "open({escaped!r}, 'w').close()\ndef patch(): pass\n"


def coordinators(folder):
    """The command and the request of each process of a gate that is not fenced itself."""
    wrapper = copied(folder.parent / "commit")
    (folder / "asv.conf.json").write_text('{"version": 1, "benchmark_dir": "."}')
    (folder / "train.py").write_text("")
    case = Case(variant="tuned", workload="mlp/tiny", batch=8, devices=("sim:0", "sim:1"), threads=1)
    timed = job(wrapper, wrapper, blocks=1)
    start = StartUpJob(
        benchmarks={"start": Timed.IMPORT}, forks=1, **timed.model_dump(include=set(StartUpJob.model_fields))
    )
    listed = [ListJob(suite=suite, text=".", pattern=True, folder=str(folder)) for suite in ("asv", "pytest")]
    return [
        (LOCKSTEP.command, LockstepJobs(jobs=(timed,), start_ups=(start,))),
        (COUNTER.command, CountJobs(jobs=(CountJob(case=case, folder=str(wrapper)),), timeout_s=100.0)),
        (SCRIPT_COUNTER.command, ScriptJobs(jobs=(ScriptJob(script="train.py"),), timeout_s=100.0)),
        (LISTER.command, ListJobs(jobs=tuple(listed), timeout_s=100.0)),
    ]


def test_coordinators_of_a_gate_look_for_no_module_in_the_folder_of_head(tmp_path, monkeypatch):
    """They start there. torch imports modules if they exist, such as gmpy2, and entry points of its backends."""
    head, hook, scratch, log, escaped = (tmp_path / name for name in ("head", "hook", "scratch", "log", "escaped"))
    for folder in (head, hook, scratch):
        folder.mkdir()
    (hook / "sitecustomize.py").write_text(LAST_FINDER.format(scratch=SCRATCH, head=str(head), log=str(log)))
    (head / "gmpy2.py").write_text(ESCAPE.format(escaped=str(escaped)))
    (head / "evil-1.0.dist-info").mkdir()
    (head / "evil-1.0.dist-info/METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (head / "evil-1.0.dist-info/entry_points.txt").write_text("[torch.backends]\nevil = gmpy2:patch\n")
    monkeypatch.chdir(head)
    monkeypatch.setenv("PYTHONPATH", str(hook))
    for command, request in coordinators(head):
        end = launch(["env", f"{SCRATCH}={scratch}", *command], request.model_dump_json(by_alias=True), 120.0)
        assert end.returncode == 0
    looked_up = log.read_text().splitlines()
    assert {"gmpy2", "opt_einsum"} <= set(looked_up)
    assert not [line for line in looked_up if line.endswith(" in head")]
    assert not escaped.exists()
