"""`dpbench project`, with committed counts of ResNet-50 in place of the simulator."""

import json
import re

import pytest

from benchmarks.instruments.projection.validate import HERE
from dpbench.cases.variants import VariantId
from dpbench.jobs import project_all
from dpbench.projection.machine_file import machine_names
from dpbench.projection.step_counts import AffineCounts
from dpbench.projection.step_sum import Fitted, fitted

ROOT = HERE.parents[2]
VARIANTS = ("--variants", "single,torch_dp,ddp")


def counted(workload, steps):
    """Return the counts of torch_dp on four lanes, or of one device."""
    name = {1: "single-1", 4: "torch_dp-4"}
    return {
        step: AffineCounts.parse((HERE / "counts" / f"resnet50_plain-{name[step[1]]}.json").read_text())
        for step in steps
    }


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """What was asked to be counted."""
    asked = []

    def count(workload, steps):
        asked.append((workload, steps))
        return counted(workload, steps)

    monkeypatch.setattr(project_all, "count_steps", count)
    return asked


def test_the_table_has_a_row_and_a_sum_for_each_variant_and_begins_with_advice(call, asked):
    code, out, _ = call("project", "convnet/base", "--machine", "4xT4-pcie", *VARIANTS)
    assert code == 0
    lines = out.splitlines()
    advice = " ".join(out.split())
    assert advice.startswith("On 4xT4-pcie the best is not decided between ddp and torch_dp: ddp has ")
    assert re.search(r"takes [\d.]+ times \([\d.]+ to [\d.]+\) that of one device with its share and 0", advice)
    assert re.search(r"ddp: input [\d.]+ ms \+ computation \d+ ms .*; the host needs [\d.]+ ms", advice)
    assert any("convnet/base on 4xT4-pcie, batch 128, 32 items on each device, default math" in line for line in lines)
    firsts = [line.split()[0] for line in lines if line.startswith(" ") and line.strip()]
    assert [word for word in firsts if word in VARIANTS[1].split(",")] == VARIANTS[1].split(",")
    steps = [(VariantId("single"), 1), (VariantId("torch_dp"), 4), (VariantId("ddp"), 1)]
    assert asked == [("convnet/base", steps)]


def test_json_has_the_same_with_units(call):
    code, out, _ = call(
        "project", "convnet/base", "--machine", "4xT4-pcie,4x4090-pcie", *VARIANTS, "--batch", "256", "--json"
    )
    printed = json.loads(out)
    assert code == 0
    assert [projection["machine"] for projection in printed["projections"]] == ["4xT4-pcie", "4x4090-pcie"]
    first = printed["projections"][0]
    assert first["batch"] == 256
    for row in first["variants"]:
        time = row["step_time_s"]
        assert 0 < time["low"] <= time["mid"] <= time["high"] < 10
        assert row["speed_up"]["mid"] <= row["devices"] * 1.0001
        assert time["mid"] == pytest.approx(max(row["host_s"], sum(row["parts_s"].values())))
    assert "On 4xT4-pcie" in first["advice"]


def test_intervals_are_the_fitted_errors_and_smaller_if_one_device_is_known(call):
    def rows(*words):
        printed = json.loads(call("project", "convnet/base", "--machine", "4xT4-pcie", *VARIANTS, "--json", *words)[1])
        return printed["projections"][0]["variants"]

    for words, error in (((), fitted().step_error), (("--one-device", "312.9"), fitted().ratio_error)):
        for row in rows(*words):
            assert row["step_time_s"]["high"] == pytest.approx(row["step_time_s"]["mid"] * error)
            factor = fitted().error_of_ratio(1 if row["devices"] > 1 else 0)
            assert row["speed_up"]["high"] == pytest.approx(row["speed_up"]["mid"] * factor)
    assert rows("--one-device", "312.9")[0]["step_time_s"]["mid"] == pytest.approx(0.3129)


def test_bf16_is_faster_and_says_that_no_row_tests_it(call):
    words = ("convnet/base", "--machine", "4xL4-pcie", "--variants", "ddp", "--json", "--math")
    full, half = (json.loads(call("project", *words, math)[1])["projections"][0] for math in ("float32", "bf16"))
    assert half["variants"][0]["step_time_s"]["mid"] < full["variants"][0]["step_time_s"]["mid"]
    assert any(note.startswith("bf16: no published step tests autocast") for note in half["notes"])


def test_a_surer_error_decides(call, monkeypatch):
    monkeypatch.setattr("dpbench.cli.project.fitted", lambda: Fitted(beside=0.05))
    _, out, _ = call("project", "convnet/base", "--machine", "4xT4-pcie", *VARIANTS)
    assert out.startswith("On 4xT4-pcie use ddp: ")


def test_a_slower_loader_and_a_queue_that_never_drains_change_the_answer(call):
    def step_s(*words):
        _, out, _ = call(
            "project", "convnet/base", "--machine", "4xT4-pcie", "--variants", "torch_dp", "--json", *words
        )
        return json.loads(out)["projections"][0]["variants"][0]["step_time_s"]["mid"]

    assert step_s("--loader", "10") == pytest.approx(128 / 10)
    assert step_s("--ahead") <= step_s() * 1.001


def test_a_variant_that_one_process_cannot_run_has_its_reason(call):
    code, out, _ = call("project", "convnet/base", "--machine", "2x8xA100-100gb", *VARIANTS)
    assert code == 0
    assert "torch_dp: one process cannot use the devices of several machines" in out


def test_one_device_has_no_scheme_for_several(call, tmp_path):
    """`dpbench doctor` writes such a file on a machine with one GPU."""
    machine = next((ROOT / "results/gpu").glob("*/machine.toml"))
    code, out, _ = call("project", "convnet/base", "--machine", machine)
    assert code == 0
    assert "tuned: the machine has one device; allowed: single" in out
    assert "use torch_dp" not in out


def test_list_has_every_machine(call):
    code, out, _ = call("project", "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(machine_names())
    _, out, _ = call("project", "--list", "--json")
    assert [machine["name"] for machine in json.loads(out)["machines"]] == list(machine_names())
