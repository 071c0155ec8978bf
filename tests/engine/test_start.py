"""A child runs its parent's dpbench, even if another one is in the current directory."""

import subprocess

import pytest

from dpbench.doctor.health import EXAMINE
from dpbench.doctor.write_machine import MEASURE
from dpbench.gate.rounds import LOCKSTEP
from dpbench.jobs.count import COUNTER
from dpbench.jobs.probe import PROBE, ask_machine
from dpbench.jobs.round import ROUND

COMMANDS = {
    "dpbench.jobs.round_child": ROUND,
    "dpbench.jobs.probe_child": PROBE,
    "dpbench.doctor.child.examine": EXAMINE,
    "dpbench.doctor.child.measure_machine": MEASURE,
    "dpbench.jobs.count_child": COUNTER,
    "dpbench.jobs.lockstep_child": LOCKSTEP,
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
