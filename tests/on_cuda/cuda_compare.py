"""`dpbench compare` on the stand-in: every variant is measured or has a reason. The times mean nothing."""

import json
import subprocess
import sys

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.engine.interpret import interpret
from dpbench.engine.messages import Job
from dpbench.jobs.round import RoundProcesses
from dpbench.judge.least_samples import LEAST_ACCELERATOR_S
from dpbench.measure.fairness import error_against_oracle, tolerance_of
from dpbench.measure.phases import PHASES, phases_of
from dpbench.measure.session import open_session
from dpbench.parallel import graphs
from dpbench.records.record import Outcome
from tests.cuda_stand_in.nvml import BUSY_PERCENT
from tests.on_cuda.translated import ROOT

COUNT = torch.cuda.device_count()
MEASURED = {"single", "torch_dp", "naive", "floor", "tuned"}


@pytest.mark.timeout(600)
def test_every_variant_is_measured_or_has_a_reason(tmp_path):
    words = ("compare", "--variants", ",".join([*MEASURED, "ddp"]), "--workloads", "mlp/tiny", "--batch", "16")
    more = ("--devices", f"cuda*{COUNT}", "--rounds", "1", "--budget", "10s", "--results", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "dpbench", *words, *more], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)  # noqa: T201
    records = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert {record["case"]["variant"]: record["outcome"] for record in records} == dict.fromkeys(MEASURED, "ok")
    for record in records:
        for device in record["case"]["devices"]:
            assert record["metrics"]["telemetry"][device]["sm_busy_percent"]["value"] == pytest.approx(
                BUSY_PERCENT, rel=1e-3
            )
    assert "this torch has no nccl, which DistributedDataParallel needs on cuda" in " ".join(done.stdout.split())


def test_graphs_are_checked_when_they_run_and_their_parts_have_times_or_reasons(monkeypatch):
    """The last forward of the check is a graph's. So a graph with wrong numbers is no valid time."""
    devices = tuple(f"cuda:{i}" for i in range(COUNT))
    case = Case(variant="tuned[graphs=true]", workload="mlp/tiny", batch=16, devices=devices, threads=1)
    session = open_session(case)
    assert error_against_oracle(session).error <= tolerance_of(case)
    assert "forwards: graphs (" in session.scheme.graph_report()[-1]
    graphs_before = session.scheme.graph_report()[-1]
    phases = phases_of(session, 2)
    assert session.scheme.graph_report()[-1] != graphs_before
    assert [phase for phase in PHASES if isinstance(phases[phase], str)] == ["replicate", "parallel_apply", "gather"]
    assert "CUDA graphs" in phases["gather"]
    launch = graphs.LaneGraph.launch_forward

    def launch_wrongly(self, inputs):
        launch(self, inputs)
        self.outputs[0].mul_(2)

    monkeypatch.setattr(graphs.LaneGraph, "launch_forward", launch_wrongly)
    assert error_against_oracle(open_session(case)).error > tolerance_of(case)


def test_cuda_begins_in_every_child_of_a_round():
    """The process of the round has asked for no device: a fork could not use CUDA otherwise."""
    devices, processes = tuple(f"cuda:{i}" for i in range(COUNT)), RoundProcesses()
    try:
        for variant in ("naive", "tuned", "naive"):
            case = Case(variant=variant, workload="mlp/tiny", batch=16, devices=devices, threads=2)
            job = Job(run="r", case=case, round=0, sampling_s=0.1)
            record = interpret(processes.launch(job, 200.0), job)
            assert record.outcome is Outcome.OK, record.reason
            assert sum(record.samples_s) >= LEAST_ACCELERATOR_S
    finally:
        processes.end_round()
