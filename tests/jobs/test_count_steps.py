"""The counts of a step at small batches, and the cache of them."""

import shutil

import pytest

from dpbench.cases.variants import VariantId
from dpbench.errors import WrongInputError
from dpbench.jobs import count_steps as counter
from dpbench.jobs.count_steps import count_affine, count_steps, step_key
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
def test_a_step_is_counted_once_and_a_damaged_cache_costs_only_time(tmp_path):
    step = count_affine("mlp/tiny", "ddp", 2, folder=tmp_path)
    assert len(step.first.gradient_bytes) == step.first.model.parameters, "each gradient is ready once"
    assert sum(step.first.gradient_bytes) == step.first.model.parameter_bytes
    assert (step.first.batch, step.last.batch, step.not_affine) == (2, 4, ())
    assert step.first.below("memory")["0"] > step.first.model.parameter_bytes
    again = count_affine("mlp/tiny", "single", 1, folder=tmp_path, launch=not_launched)
    assert again == step
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AssertionError, match="launched"):
        count_affine("mlp/tiny", "single", 1, folder=tmp_path, launch=not_launched)


@needs_simulator
def test_ways_of_dispatch_differ_in_the_hosts_calls_alone(tmp_path):
    ways = [(VariantId(f"tuned[dispatch={name}]"), 2) for name in ("sequence", "threads")]
    nccl = VariantId("tuned[route=nccl]"), 2
    affine = count_steps("mlp/tiny", [*ways, nccl], folder=tmp_path)
    first, second = (affine[way].at(64) for way in ways)
    assert first.below("work") == pytest.approx(second.below("work"))
    assert first.below("sent") == pytest.approx(second.below("sent"))
    assert set(first.below("host", "forward")) != set(second.below("host", "forward"))
    alone = count_affine("mlp/tiny", "tuned[dispatch=threads]", 2, folder=tmp_path / "other").at(64)
    assert second.below("sent") == pytest.approx(alone.below("sent"))
    assert second.below("work") == pytest.approx(alone.below("work"))
    assert affine[nccl].first.below("sent", "weights", 0, 1)["bytes"] > 0  # as the star's


@needs_simulator
def test_a_model_that_needs_numbers_is_counted_with_them(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    step = count_affine("mine:make", "tuned", 2, folder=tmp_path / "file" / "absent")
    assert step.first.model.parameters == 2


@needs_simulator
def test_a_case_that_cannot_be_counted_is_refused(tmp_path):
    with pytest.raises(WrongInputError, match="absent"):
        count_affine("absent:make", "tuned", 2, folder=tmp_path)
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
    monkeypatch.setattr(counter, "_sources", lambda: "other")
    keys.add(step_key("mine:make", "tuned", 2))
    assert len(keys) == 6


@pytest.mark.parametrize("name", ["cases/variants.py", "cases/parameters.py", "cases/case.py", "new/file.py"])
def test_the_key_holds_every_source_of_dpbench(tmp_path, monkeypatch, name):
    root = tmp_path / "dpbench"
    shutil.copytree(counter._ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(counter, "_ROOT", root)
    before = counter._sources.__wrapped__()
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("# changed")
    assert counter._sources.__wrapped__() != before
