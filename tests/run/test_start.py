"""Children are of the parent's own dpbench, whatever the folder holds that they are started in."""

import subprocess

import pytest

from dpbench.doctor import ask
from dpbench.gate.take_round import LOCKSTEP
from dpbench.run.ask import PROBE, ask_machine
from dpbench.run.count_all import COUNTER
from dpbench.run.runner import WORKER
from dpbench.run.start import child_command

COMMANDS = {
    "worker": WORKER,
    "probe": PROBE,
    "probe_health": ask.PROBE,
    "count": COUNTER,
    "lockstep": LOCKSTEP,
    "count_case": child_command("dpbench.run.child.count_case"),
}
FACTORY = """
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Workload
from dpbench.sweep.names import Data

def make():
    usual = resolve("mlp/tiny", Data.RANDOM)
    def model():
        import tree  # when it is built, not when the factory is called; dpbench/run has one of that name too
        return tree.plant(usual.model())
    return Workload(model=model, batch=usual.batch, loss=usual.loss)
"""


def fill_with_another_dpbench(folder):
    (folder / "dpbench/run").mkdir(parents=True)
    (folder / "dpbench/__init__.py").write_text("raise SystemExit('the folder\\'s dpbench')")


def fill_with_a_wrapper_alone(folder):
    (folder / "dpbench/parallel").mkdir(parents=True)
    (folder / "dpbench/parallel/__init__.py").touch()


def helped(command, folder):
    done = subprocess.run([*command, "--help"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_another_dpbench_in_the_folder_is_not_looked_at(tmp_path, monkeypatch, name):
    fill_with_another_dpbench(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert helped(COMMANDS[name], tmp_path).startswith(f"usage: python -m dpbench.run.{name} ")


def test_a_wrapper_alone_in_the_folder_hides_nothing(tmp_path, monkeypatch):
    fill_with_a_wrapper_alone(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert helped(WORKER, tmp_path)


def test_what_a_child_imports_is_not_hidden_and_a_factory_has_all_of_its_folder(tmp_path, monkeypatch):
    fill_with_another_dpbench(tmp_path)
    (tmp_path / "torch.py").write_text("raise SystemExit('the folder\\'s torch')")
    (tmp_path / "mine.py").write_text(FACTORY)
    (tmp_path / "tree.py").write_text("def plant(model): return model")
    monkeypatch.chdir(tmp_path)
    assert ask_machine(("mine:make",)).workload_errors == {"mine:make": None}
