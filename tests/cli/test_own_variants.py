"""A user's variants: in one process or in one for each device; a faulty one costs its own case, with one line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId
from dpbench.jobs.count import count_all
from dpbench.records.record import Outcome
from dpbench.variants.registry import variant_of
from dpbench.workloads.workload import WorkloadError
from tests.simulated import needs_simulator

OWN = Path(__file__).parents[1] / "variants/own_variants.py"
FAULTS = {
    "halves[scal=2]": "the call with (model, devices) raised TypeError: halves() got an unexpected keyword",
    "takes": "took 1 parameters out of the model, such as weight; a wrapper that leaves",
    "nothing": "returned int '3'; what is called with the batch is allowed",
    "raises": "the call with (model, devices) raised RuntimeError: no way",
    "number": "is int '3'; a callable with (model, devices) is allowed",
    "missing": "looking up missing raised AttributeError: module 'own_variants' has no attribute",
}


def test_they_are_compared_like_ours_and_a_faulty_one_costs_its_own_case(dpbench, tmp_path):
    shutil.copy(OWN, tmp_path)
    right = [f"own_variants:{name}" for name in ("halves", "Class", "ranks")]
    variants = ",".join([*right, "own_variants:halves[scale=2]", "nowhere:to_be_found"])
    where = ["--workloads", "mlp/tiny", "--batch", "8", "--devices", "cpu*2", "--rounds", "1", "--budget", "5s"]
    done = dpbench("compare", "--variants", variants, *where, "--json")
    assert done.returncode == 0, done.stderr
    cases = {case["variant"]: case for case in json.loads(done.stdout)["cases"]}
    assert None not in [cases[name]["step_time_s"] for name in right]
    wrong, absent = cases["own_variants:halves[scale=2]"], cases["nowhere:to_be_found"]
    assert (wrong["outcome"], wrong["step_time_s"], wrong["ratio"]) == ("wrong_result", None, None)
    assert (absent["outcome"], absent["step_time_s"]) == ("crashed", None)
    assert "importing nowhere raised ModuleNotFoundError" in absent["reason"]


def test_a_comparison_in_which_no_variant_asked_for_was_measured_ends_with_code_1(dpbench):
    """`single` runs beside it, for percentages."""
    where = ["--workloads", "mlp/tiny", "--batch", "8", "--devices", "cpu*2", "--rounds", "1", "--budget", "5s"]
    done = dpbench("compare", "--variants", "nowhere:to_be_found", *where)
    assert done.returncode == 1
    assert "single" in done.stdout


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line(name, monkeypatch):
    monkeypatch.chdir(OWN.parent)
    text = f"own_variants:{name}"
    with pytest.raises(WorkloadError) as caught:
        variant_of(VariantId(text)).wrap(nn.Linear(2, 2), [torch.device("cpu")] * 2)
    assert str(caught.value).startswith(f"variants: {text!r}: {FAULTS[name]}")
    assert "\n" not in str(caught.value)


@needs_simulator
@pytest.mark.parametrize(
    ("name", "devices", "outcome"),
    [
        ("Class", ("sim:0", "sim:1"), Outcome.OK),
        ("halves", ("cpu", "cpu"), Outcome.OK),
        ("ranks", ("cpu", "cpu"), Outcome.OK),
        ("ranks", ("sim:0", "sim:1"), Outcome.CRASHED),
        ("nothing", ("cpu", "cpu"), Outcome.CRASHED),
    ],
)
def test_they_are_counted(name, devices, outcome, monkeypatch):
    monkeypatch.chdir(OWN.parent)
    case = Case(variant=f"own_variants:{name}", workload="mlp/tiny", batch=8, devices=devices, threads=1)
    (record,) = count_all([case])
    assert record.outcome is outcome, record.reason
    if outcome is not Outcome.OK:
        assert record.reason.startswith(f"variants: 'own_variants:{name}'")
    elif name == "ranks":
        assert record.counts.by_name()["backward.collectives.allreduce.count"] > 0
