"""The commands as a person types them, on the smallest real work."""

import json

import pytest

from dpbench.records.record import Record
from dpbench.records.row import SCHEMA
from tests.cli.conftest import ROOT

QUICK = ("--workloads", "mlp/tiny", "--batch", "16", "--rounds", "1", "--budget", "1s")


def records(folder):
    files = sorted(folder.glob("results/runs/*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return files, [json.loads(line) for line in lines]


@pytest.mark.exhaustive
def test_compare_prints_a_table_and_keeps_records(dpbench, tmp_path):
    done = dpbench("compare", *QUICK, "--variants", "naive,tuned,torch_dp,ddp")
    assert done.returncode == 0, done.stderr
    for word in ("naive", "tuned", "ddp", "single", "% single", "torch_dp", "needs an accelerator"):
        assert word in done.stdout
    files, rows = records(tmp_path)
    assert len(files) == 1
    assert sorted(row["case"]["variant"] for row in rows) == ["ddp", "naive", "single", "tuned"]
    assert all(row["schema"] == SCHEMA and row["outcome"] == "ok" and row["samples_s"] for row in rows)


def test_json_is_alone_on_standard_output_and_a_page_is_beside_the_records(dpbench_process, tmp_path):
    done = dpbench_process("compare", *QUICK, "--variants", "naive,floor", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    rows = {row["variant"]: row for row in shown["cases"]}
    assert rows["floor"]["ratio"]["to"] == "naive"
    assert rows["floor"]["step_time_s"]["median"] > 0
    assert rows["floor"]["devices"] == ["cpu", "cpu"]
    assert rows["naive"]["outcome"] == "ok"
    assert shown["environment"]["torch"]
    ((file,), _) = records(tmp_path)
    page = file.with_suffix(".html")
    assert f"dpbench: page: {page.relative_to(tmp_path)}\n" in done.stderr
    assert "mlp/tiny" in page.read_text()


@pytest.mark.exhaustive
def test_a_variant_with_parameters_is_measured_and_shown(dpbench, tmp_path):
    done = dpbench("compare", *QUICK, "--variants", "tuned[dispatch=threads,bucket_bytes=1KiB],naive")
    assert done.returncode == 0, done.stderr
    assert "tuned[bucket_bytes=1024,dispatch=threads]" in done.stdout
    _, rows = records(tmp_path)
    variants = sorted(row["case"]["variant"] for row in rows)
    assert variants == ["naive", "single", "tuned[bucket_bytes=1024,dispatch=threads]"]


@pytest.mark.exhaustive
def test_a_sample_may_have_several_steps(dpbench, tmp_path):
    done = dpbench("compare", *QUICK, "--variants", "naive,ddp", "--steps-per-sample", "50")
    assert done.returncode == 0, done.stderr
    assert "50 steps per sample" in done.stdout
    _, rows = records(tmp_path)
    assert {row["case"]["variant"] for row in rows} == {"single", "naive", "ddp"}
    for record in rows:
        assert (record["case"]["steps_per_sample"], record["outcome"]) == (50, "ok")
        # one step to know the first loss, then samples
        assert divmod(record["metrics"]["warmup_steps"], 50)[1] == 1


def test_a_failing_workload_leaves_the_others_alone(dpbench, tmp_path):
    (tmp_path / "mine.py").write_text(FAILING)
    workloads = ",".join(["mlp/tiny", *(f"mine:{name}" for name in ("crash", "memory", "device", "raising"))])
    options = ("--variants", "single", "--rounds", "1", "--batch", "16", "--budget", "1s")
    done = dpbench("compare", "--workloads", workloads, *options, "--json")
    assert done.returncode == 0, done.stderr
    _, rows = records(tmp_path)
    outcomes = {row["case"]["workload"]: (row["outcome"], row["reason"]) for row in rows}
    assert outcomes["mlp/tiny"][0] == "ok"
    expected = {
        "crash": ("crashed", "SIGSEGV"),
        "memory": ("out_of_memory", "allocate"),
        "device": ("out_of_memory", "CUDA out of memory"),
        "raising": ("crashed", "KeyError"),
    }
    for name, (outcome, word) in expected.items():
        assert outcomes[f"mine:{name}"][0] == outcome, outcomes
        assert word in outcomes[f"mine:{name}"][1]
    assert all(Record.model_validate({**row, "case": without_id(row["case"])}) for row in rows)


def without_id(case):
    return {key: value for key, value in case.items() if key != "id"}


FAILING = '''
"""Workloads that load, and fail when stepped with more than the check's two items."""
import ctypes, dataclasses
import torch
from dpbench.workloads.resolve import resolve

PLAIN = resolve("mlp/tiny", "random")

def failing(act):
    def loss(output, target):
        if len(target) > 2:
            act()
        return PLAIN.loss(output, target)
    return dataclasses.replace(PLAIN, loss=loss)

def crash():
    return failing(lambda: ctypes.string_at(0))

def memory():
    return failing(lambda: torch.empty(2**50))

def device():
    def act():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return failing(act)

def raising():
    return failing(lambda: {}["absent"])
'''


def test_wrong_results_have_no_ratio(dpbench, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import dataclasses\n"
        "from torch import nn\n"
        "from dpbench.workloads.resolve import resolve\n"
        "class Noisy(nn.Sequential):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x)\n"
        "        return y + nn.init.normal_(y.detach().clone())\n"
        "def factory():\n"
        "    plain = resolve('mlp/tiny', 'random')\n"
        "    return dataclasses.replace(plain, model=lambda: Noisy(*plain.model()))\n"
    )
    done = dpbench("compare", "--workloads", "mine:factory", "--variants", "floor", *QUICK[2:], "--json")
    assert done.returncode == 1, done.stderr
    rows = json.loads(done.stdout)["cases"]
    assert {row["outcome"] for row in rows} == {"wrong_result"}
    assert all(row["ratio"] is None and "not the same computation" in row["reason"] for row in rows)


def test_digits_train(dpbench, tmp_path):
    done = dpbench("compare", *QUICK, "--variants", "single", "--data", "digits", "--json")
    assert done.returncode == 0, done.stderr
    _, rows = records(tmp_path)
    assert all(row["metrics"]["loss_last"] < row["metrics"]["loss_first"] for row in rows)


def test_without_a_command_it_prints_the_help(call):
    code, out, err = call()
    assert (code, out, err) == (0, call("--help")[1], "")
    assert out.startswith("Usage: ")
    assert len(out.splitlines()) > 20


def test_list(call, tmp_path):
    code, out, _ = call("list")
    assert code == 0
    assert all(name in out for name in VARIANTS)
    listed = json.loads(call("list", "--json")[1])
    assert listed["variants"]
    units = {workload["name"]: workload["unit"] for workload in listed["workloads"]}
    assert (units["convnet/small"], units["transformer/tiny"]) == ("images", "sequences")
    assert "items are images" in " ".join(out.split())
    assert "convnet (images), transformer (sequences)" in " ".join(call("compare", "--help")[1].split())
    assert {"bucket_bytes", "dispatch", "bucket_cap_mb"} <= {parameter["name"] for parameter in listed["parameters"]}
    assert not list(tmp_path.iterdir())


VARIANTS = ("single", "torch_dp", "naive", "floor", "tuned", "ddp")


def test_doctor_says_what_disturbs_and_ends_with_1_where_it_spoils_measurements(dpbench, tmp_path):
    done = dpbench("doctor", "--quick", "--json")
    shown = json.loads(done.stdout)
    assert {variant["name"] for variant in shown["variants"]} >= set(VARIANTS)
    assert {"other load", "steal time", "host memory bandwidth"} <= {finding["what"] for finding in shown["findings"]}
    assert {finding["severity"] for finding in shown["findings"]} <= {"ok", "note", "unreliable"}
    spoilt = [finding for finding in shown["findings"] if finding["severity"] == "unreliable"]
    assert done.returncode == (1 if spoilt else 0), done.stderr
    assert shown["reliable"] is not bool(spoilt)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["compare", "sweep", "init", "list", "doctor"])
def test_help_has_an_example(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert f"dpbench {command}" in out.split("Example", 1)[1]


@pytest.mark.parametrize(
    ("command", "rare", "usual"),
    [("compare", "--seed", "--rounds"), ("gate", "--base-exact", "--base"), ("counts", "--update", "--script")],
)
def test_options_for_maintainers_are_a_group_at_the_end(call, command, rare, usual):
    options, _, others = call(command, "--help")[1].partition("Options for maintainers:")
    assert f"  {usual} " in options
    assert f"  {rare} " in others
    assert f"  {rare} " not in options


def test_an_unknown_option_names_the_help_of_its_command(call):
    code, out, err = call("compare", "--foo")
    assert (code, out) == (2, "")
    assert err == "dpbench: No such option: --foo. Allowed: what `dpbench compare --help` lists.\n"


def test_an_unknown_command_names_the_nearest_one(call):
    error = "dpbench: No such command 'comparee'. Did you mean 'compare'? Allowed: what `dpbench --help` lists.\n"
    assert call("comparee") == (2, "", error)


NVML_WITH_A_GPU = """
import pynvml
pynvml.nvmlInit = lambda: None
pynvml.nvmlDeviceGetCount = lambda: 1
pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
pynvml.nvmlDeviceGetName = lambda handle: "NVIDIA Imaginary 1"
"""


@pytest.mark.parametrize(("command", "codes"), [(["compare"], [3]), (["doctor", "--quick"], [0, 1])], ids=str)
def test_a_gpu_that_torch_cannot_use_is_no_reason_to_fall_back(dpbench_process, tmp_path, command, codes):
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "sitecustomize.py").write_text(NVML_WITH_A_GPU)
    done = dpbench_process(*command, PYTHONPATH=f"{fake}:{ROOT}")
    assert done.returncode in codes, done.stderr
    assert "NVIDIA Imaginary 1" in done.stderr
    assert "torch" in done.stderr
    assert not (tmp_path / "results").exists()
