"""Projected beside measured step times of `make gpu`."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from benchmarks.instruments.gpu_summary import OLD_TORCH, Asked, main, measured_of, projection_lines
from benchmarks.machine_file import write_machine_file
from tests.benchmarks.machines import machine_of

TWO = ["cuda:0", "cuda:1"]


def record(variant="tuned", lanes=TWO, samples=(0.002, 0.004, 0.003), outcome="ok", **case):
    chosen = {"variant": variant, "workload": "mlp/small", "batch": 64, "devices": list(lanes), "steps_per_sample": 1}
    return {"outcome": outcome, "samples_s": list(samples), "case": chosen | case}


def test_a_measured_time_is_the_median_over_rounds_of_a_step():
    rounds = [record(), record(samples=[0.005]), record(samples=[0.004])]
    assert measured_of(rounds, 2) == {(Asked("mlp/small", 64, False), "tuned"): 0.004}
    ahead = measured_of([record(steps_per_sample=20, samples=[0.02])], 2)
    assert ahead == {(Asked("mlp/small", 64, True), "tuned"): 0.001}


@pytest.mark.parametrize(
    "left_out",
    [
        record(lanes=["cuda:0"]),
        record(lanes=["cuda:0", "cuda:0"]),
        record(lanes=["cuda:0", "cuda:1", "cuda:2"]),
        record(variant="floor"),
        record(outcome="crashed", samples=()),
        record(batch=65),
        record("single"),
    ],
)
def test_what_a_machine_file_does_not_describe_is_left_out(left_out):
    assert measured_of([left_out], 2) == {}


def test_single_is_projected_with_its_batch_on_each_device():
    records = [record("single", ["cuda:0"]), record(), record("ddp", batch=128)]
    small, large = Asked("mlp/small", 64, False), Asked("mlp/small", 128, False)
    assert list(measured_of(records, 2)) == [(large, "single"), (small, "tuned"), (large, "ddp")]
    assert large.command("m.toml", ["single", "ddp"])[-3:] == ["128", "--variants", "single,ddp"]


@pytest.fixture
def folder(tmp_path):
    write_machine_file(tmp_path / "machine.toml", machine_of(2))
    (tmp_path / "compared").mkdir()
    lines = [record(), record("single", ["cuda:0"])]
    (tmp_path / "compared" / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.fixture
def said(folder, monkeypatch):
    """Return a function that runs the script with a fake `dpbench project`, and returns exit code and lines."""

    def call(returncode=0, stderr="", mid=0.0045):
        def project(command, **_):
            names = command[command.index("--variants") + 1].split(",")
            rows = [{"variant": name, "step_time_s": {"low": 0.002, "mid": mid, "high": 0.006}} for name in names]
            shown = json.dumps({"projections": [{"variants": rows}]})
            return SimpleNamespace(returncode=returncode, stdout=shown, stderr=stderr)

        monkeypatch.setattr(subprocess, "run", project)
        lines = []
        return main([str(folder)], lines.append), lines

    return call


def test_each_case_is_a_line_with_both_times_and_their_ratio(said):
    code, lines = said()
    assert code == 0
    assert lines == [
        "mlp/small batch 64 on 2: tuned: measured 3 ms, projected 4.5 [2, 6] ms, ratio 1.50, inside the interval",
        "mlp/small batch 64 on 1: single: measured 3 ms, projected 4.5 [2, 6] ms, ratio 1.50, inside the interval",
        "2 cases: projected / measured from 1.50 to 1.50",
    ]


def test_with_an_older_torch_the_command_for_another_machine_is_printed(said, folder):
    code, lines = said(3, f"dpbench: {OLD_TORCH} 2.13, 2.14; this is 2.11.0, which is older")
    command = f"python -m benchmarks.instruments.gpu_summary {folder}"
    assert (code, lines[1:]) == (77, [f"torch is too old to project here; elsewhere: {command}"])


def test_another_failure_is_a_failure(said):
    assert said(3, "dpbench: out of luck") == (1, ["dpbench: out of luck"])


def test_the_simulator_says_these_words_of_an_older_torch():
    from dpbench.simulator.torch_versions import why_unsupported

    assert OLD_TORCH in why_unsupported("2.11.0")


def test_a_variant_that_was_not_projected_has_no_line():
    measured = measured_of([record(), record("ddp")], 2)
    times = {(Asked("mlp/small", 64, False), "ddp"): {"low": 0.001, "mid": 0.001, "high": 0.002}}
    shown = list(projection_lines(measured, times, 2))
    assert len(shown) == 2
    assert list(projection_lines(measured, {}, 2)) == ["no case has a projection"]
    assert "ddp: measured 3 ms, projected 1 [1, 2] ms, ratio 0.33, outside the interval" in shown[0]


def test_without_a_machine_file_or_a_comparison_nothing_is_projected(folder, tmp_path_factory):
    lines = []
    (folder / "compared" / "x.jsonl").write_text(json.dumps(record("floor")))
    assert main([str(folder)], lines.append) == 77
    assert main([str(tmp_path_factory.mktemp("empty"))], lines.append) == 77
    assert "the step `machine` says why" in lines[1]
    assert main(["no/folder"], lines.append) == main([], lines.append) == 2
