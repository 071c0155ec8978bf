"""Real children that lose a GPU: one process for all devices, and one rank of two."""

from pathlib import Path

import pytest

from dpbench.cases.case import Case
from dpbench.engine.interpret import interpret
from dpbench.engine.messages import Job
from dpbench.jobs.round import run_alone
from dpbench.records.record import Outcome

LOSING = """
import dataclasses
from torch import distributed
from dpbench.workloads.resolve import resolve

PLAIN = resolve("mlp/tiny", "random")

def losing(rank):
    def loss(output, target):
        own = distributed.get_rank() if distributed.is_initialized() else 0
        if own == rank and len(target) > 2:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered\\nCompile with TORCH_USE_CUDA_DSA")
        return PLAIN.loss(output, target)
    return dataclasses.replace(PLAIN, loss=loss)

def first():
    return losing(0)

def second():
    return losing(1)
"""


@pytest.mark.parametrize(
    ("variant", "factory", "word"), [("tuned", "first", "CUDA error"), ("ddp", "second", "lost_gpu: CUDA error")]
)
def test_the_outcome_is_lost_gpu(tmp_path, monkeypatch, variant, factory, word):
    (tmp_path / "losing.py").write_text(LOSING)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    case = Case(variant=variant, workload=f"losing:{factory}", batch=16, devices=("cpu", "cpu"), threads=2)
    job = Job(run="r1", case=case, round=0, sampling_s=1.0)
    record = interpret(run_alone(job, 100.0), job)
    assert record.outcome is Outcome.LOST_GPU, record.reason
    assert f"{word}: uncorrectable ECC error encountered" in record.reason
