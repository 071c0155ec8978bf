"""A step recorded at small batches, and the cache of steps."""

import shutil

import pytest

from dpbench.processes import record_step as recorder
from dpbench.processes.count_all import NotCountableError
from dpbench.processes.record_step import record_step, step_key
from dpbench.records.recording import GradientReady
from tests.simulated import needs_simulator

FACTORY = """
from torch import nn
import torch
from dpbench.workloads.workload import Batch, Workload

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 10)
    def forward(self, x):
        return self.layer(x) * (1.0 if x.sum().item() < 1e9 else 2.0)

def make():
    batch = lambda size, generator: Batch((torch.randn(size, 4),), torch.zeros(size, dtype=torch.long))
    return Workload(model=Model, batch=batch, loss=nn.functional.cross_entropy)
"""


def not_launched(*_):
    raise AssertionError("launched")


@needs_simulator
def test_a_step_is_recorded_once_and_a_damaged_cache_costs_only_time(tmp_path):
    step = record_step("mlp/tiny", "ddp", 2, folder=tmp_path)
    gradients = [event.parameter for event in step.first.events if isinstance(event, GradientReady)]
    assert sorted(gradients) == list(range(step.first.model.parameters)), "each gradient is ready once"
    assert step.batches == (2, 3, 4)
    assert step.not_affine == ()
    assert sum(step.last["flops"]) > 0
    again = record_step("mlp/tiny", "single", 1, folder=tmp_path, launch=not_launched)
    assert again.last == step.last
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AssertionError, match="launched"):
        record_step("mlp/tiny", "single", 1, folder=tmp_path, launch=not_launched)


@needs_simulator
def test_a_model_that_needs_numbers_is_recorded_with_them(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    step = record_step("mine:make", "tuned", 2, folder=tmp_path / "file" / "absent")
    assert step.first.model.parameters == 2


@needs_simulator
def test_a_case_that_cannot_be_recorded_is_refused(tmp_path):
    with pytest.raises(NotCountableError, match="absent"):
        record_step("absent:make", "tuned", 2, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_key_holds_what_decides_the_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FACTORY)
    first = step_key("mine:make", "tuned", 2)
    assert first == step_key("mine:make", "tuned", 2)
    keys = {
        first,
        step_key("mine:make", "naive", 2),
        step_key("mine:make", "tuned", 3),
        step_key("mlp/tiny", "tuned", 2),
    }
    (tmp_path / "mine.py").write_text(FACTORY + "\n")
    keys.add(step_key("mine:make", "tuned", 2))
    monkeypatch.setattr(recorder, "_sources", lambda: "other")
    keys.add(step_key("mine:make", "tuned", 2))
    assert len(keys) == 6


@pytest.mark.parametrize("name", ["cases/variants.py", "cases/parameters.py", "cases/case.py", "new/file.py"])
def test_the_key_holds_every_source_of_dpbench(tmp_path, monkeypatch, name):
    root = tmp_path / "dpbench"
    shutil.copytree(recorder._ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(recorder, "_ROOT", root)
    before = recorder._sources.__wrapped__()
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("# changed")
    assert recorder._sources.__wrapped__() != before
