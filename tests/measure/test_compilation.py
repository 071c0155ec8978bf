"""torch compiles before the samples only. What it compiles is recorded, and what it cannot compile fails in a line."""

import subprocess
import sys
from dataclasses import replace

import pytest
import setuptools  # noqa: F401  # the compiler needs it, and it cannot be imported once a test has imported pip
import torch
from torch._dynamo.callback import CallbackTrigger, callback_handler
from torch._dynamo.utils import counters

from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId
from dpbench.engine.messages import CountJob, Job
from dpbench.jobs.count_child import count_case
from dpbench.jobs.worker import measured
from dpbench.measure.ranks.team import Team
from dpbench.measure.sample import sample
from dpbench.measure.session import open_session
from dpbench.measure.stopping import NotSettledError, StopRule, WarmUp
from dpbench.records.record import Outcome
from dpbench.variants import variant
from tests.fakes import FakeEdges, ScriptedClock

CASE = Case(variant=VariantId("single[compile=default]"), workload="mlp/tiny", batch=8, devices=("cpu",), threads=1)
JOB = Job(run="r", case=CASE, round=0, sampling_s=0.1)


def test_a_step_that_compiled_is_followed_by_one_more():
    session = open_session(CASE.of("single"))
    assert session.trials_left() == 0
    with callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "0/0"):
        pass
    assert [session.trials_left(), session.trials_left()] == [1, 0]


def test_a_compilation_among_the_samples_fails_the_case_with_torchs_reason():
    clock, sizes = ScriptedClock(), iter([2, 2, 3])
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)

    def step():
        clock.advance(1.0)
        compiled(torch.ones(next(sizes, 3)))

    with pytest.raises(NotSettledError, match=r"again while samples were taken: .*size mismatch"):
        sample(step, clock, Team(), WarmUp(max_s=0.0), StopRule(max_s=0.0), window=FakeEdges(clock))


def test_a_compiled_variant_of_which_nothing_is_compiled_fails(monkeypatch):
    counters.clear()
    monkeypatch.setattr(variant, "SINGLE", replace(variant.SINGLE, wrap=lambda base, _: base._orig_mod))
    record = measured(JOB, None)
    assert (record.outcome, record.reason) == (
        Outcome.CRASHED,
        "torch.compile compiled no graph: all that the scheme called ran eagerly",
    )


def test_a_compiled_case_has_the_seconds_of_its_compilation_and_right_gradients(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    metrics = measured(JOB, None).metrics
    assert metrics.compile_s > 0.1  # by Inductor
    assert metrics.relative_error < 1e-5
    assert measured(JOB.model_copy(update={"case": CASE.of("single")}), None).metrics.relative_error == 0.0


def test_a_missing_compiler_is_one_line_that_names_it(tmp_path):
    code = f"""
from dpbench.engine.messages import CountJob, Job
from dpbench.jobs.count_child import count_case
from dpbench.jobs.worker import measured
record = measured(Job.model_validate_json({JOB.model_dump_json()!r}), None)
print(record.outcome, record.reason)
"""
    environment = {"CXX": "/nonexistent/g++", "PATH": "", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    child = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert child.stdout.startswith("crashed torch.compile: InvalidCxxCompiler: No working C++ compiler")
    assert "/nonexistent/g++" in child.stdout
    assert len(child.stdout.splitlines()) == 1


def test_a_compiled_step_of_a_gate_is_not_counted_on_simulated_devices():
    record = count_case(CountJob(case=CASE.model_copy(update={"devices": ("sim:0",)})))
    assert (record.outcome, record.reason.partition(" ")[0]) == (Outcome.SKIPPED, "compile:")
