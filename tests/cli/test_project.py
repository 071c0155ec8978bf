"""`dpbench project`, with recorded steps of ResNet-50 in place of its recorder."""

import json
import re
import sys
from pathlib import Path

import pytest

from dpbench import cli
from dpbench.processes import project_all
from dpbench.projection.affine import AffineStep
from dpbench.projection.described.machine_file import machine_names
from dpbench.projection.model_error import EXACT, model_error
from tests.trace.trace_events import faults

STEPS = Path(__file__).parents[2] / "benchmarks" / "projection" / "recordings"
VARIANTS = ("--variants", "single,torch_dp,ddp")


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Call the command line; the call returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    asked = []

    def recorded(workload, variant, lanes):
        asked.append((workload, str(variant), lanes))
        name = "single-1" if lanes == 1 else "torch_dp-4"
        return AffineStep.read(STEPS / f"resnet50_plain-{name}.json.gz")

    monkeypatch.setattr(project_all, "record_step", recorded)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dpbench", "project", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    call.asked = asked
    return call


def test_the_table_has_a_row_for_each_variant_and_ends_with_advice(call):
    code, out, _ = call("convnet/base", "--machine", "4xT4-pcie", *VARIANTS)
    assert code == 0
    lines = out.splitlines()
    advice = " ".join(out.split())
    assert advice.startswith("On 4xT4-pcie the best is not decided between ddp and torch_dp: ddp has ")
    assert re.search(r"times one device \([\d.]+ to [\d.]+\), \d+% faster than torch_dp \(-\d+% to \d+%\)", advice)
    assert any("convnet/base on 4xT4-pcie, batch 128, 32 items on each device, default math" in line for line in lines)
    firsts = [line.split()[0] for line in lines if line.startswith(" ") and line.strip()]
    assert [word for word in firsts if word in VARIANTS[1].split(",")] == VARIANTS[1].split(",")
    assert call.asked == [("convnet/base", "single", 1), ("convnet/base", "torch_dp", 4), ("convnet/base", "ddp", 1)]


def test_json_has_the_same_with_units(call):
    code, out, _ = call("convnet/base", "--machine", "4xT4-pcie,4x4090-pcie", *VARIANTS, "--batch", "256", "--json")
    found = json.loads(out)
    assert code == 0
    assert [each["machine"] for each in found["projections"]] == ["4xT4-pcie", "4x4090-pcie"]
    first = found["projections"][0]
    assert first["batch"] == 256
    for row in first["variants"]:
        time = row["step_time_s"]
        assert 0 < time["low"] <= time["mid"] <= time["high"] < 10
        assert row["speed_up"]["mid"] <= row["devices"] * 1.0001
    assert "On 4xT4-pcie" in first["advice"]


def test_all_intervals_have_the_models_error(call, monkeypatch):
    def first():
        found = json.loads(call("convnet/base", "--machine", "4xT4-pcie", *VARIANTS, "--json")[1])
        return found["projections"][0]

    found = first()
    monkeypatch.setattr(project_all, "model_error", lambda: EXACT)
    plain = first()
    error = model_error()
    for row, bare in zip(found["variants"], plain["variants"], strict=True):
        assert row["step_time_s"]["low"] == pytest.approx(bare["step_time_s"]["low"] / error.step_time)
        factor = error.of_ratio(1 if row["devices"] > 1 else 0)
        assert row["speed_up"]["high"] == pytest.approx(bare["speed_up"]["high"] * factor)
    assert plain["advice"].startswith("On 4xT4-pcie use ddp: ")
    assert found["advice"].startswith("On 4xT4-pcie the best is not decided between ddp and torch_dp: ")


def test_a_slower_loader_and_a_queue_that_never_drains_change_the_answer(call):
    def step_s(*words):
        _, out, _ = call("convnet/base", "--machine", "4xT4-pcie", "--variants", "torch_dp", "--json", *words)
        return json.loads(out)["projections"][0]["variants"][0]["step_time_s"]["mid"]

    assert step_s("--loader", "10") == pytest.approx(128 / 10)
    assert step_s("--ahead") <= step_s() * 1.001


def test_the_timeline_is_written_for_perfetto(call, tmp_path):
    code, _, _ = call("convnet/base", "--machine", "4xT4-pcie", "--variants", "torch_dp", "--events", "step.json")
    trace = json.loads((tmp_path / "step.json").read_text())
    names = {event["args"].get("name") for event in trace["traceEvents"] if event["ph"] == "M"}
    assert code == 0
    assert {"main thread", "stream 1", "nccl", *(f"torch_dp (projected): device {i}" for i in range(4))} <= names
    assert faults(trace) == []


def test_a_variant_that_one_process_cannot_run_has_its_reason(call):
    code, out, _ = call("convnet/base", "--machine", "2x8xA100-100gb", *VARIANTS)
    assert code == 0
    assert "torch_dp: one process cannot use the devices of several machines" in out


def test_list_has_every_machine(call):
    code, out, _ = call("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(machine_names())
    _, out, _ = call("--list", "--json")
    assert [each["name"] for each in json.loads(out)["machines"]] == list(machine_names())
