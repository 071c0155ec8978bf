"""`dpbench asv-machine` and `asv-export`: what they print and the exit code, without children."""

import json
import sys

import pytest

from dpbench import cli
from dpbench.asv.grid import STEP_TIME
from dpbench.cases.machine_info import MachineInfo
from dpbench.cli import asv as cli_asv
from dpbench.records.record import to_line
from tests.records.making import ENVIRONMENT, case, ok

MACHINE = MachineInfo(python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=2**30)
COMMIT = "0123456789" * 4


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Call the command line in an empty folder; the call returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_asv, "ask_machine", lambda: MACHINE)
    monkeypatch.setattr(cli_asv, "commit_date_ms", lambda _: 0)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dpbench", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def stamped(call):
    """Write this machine into a machine file; return the options that name both."""
    options = ("--machine", "here", "--machine-file", "machines.json")
    assert call("asv-machine", *options)[0] == 0
    return options


def records(path, **environment):
    found = ENVIRONMENT.model_copy(update={"commit": COMMIT, "dirty": False, **environment})
    path.write_bytes(to_line(ok(case(workload="mlp/small"), 0, (0.1,) * 8, environment=found)))
    return str(path)


def test_the_machine_file_is_told_and_written(call, tmp_path):
    code, out, err = call("asv-machine", "--machine-file", "machines.json", "--machine", "here")
    assert (code, err) == (0, "")
    assert out.startswith("machines.json:\n")
    assert "  torch: 2.13.0\n" in out
    assert json.loads((tmp_path / "machines.json").read_text())["here"]["num_gpu"] == "0"
    code, out, _ = call("asv-machine", "--machine-file", "machines.json", "--machine", "here", "--json")
    assert json.loads(out)["machine"] == "here"


def test_gpus_that_torch_cannot_use_are_no_machine_without_gpus(call, monkeypatch, tmp_path):
    monkeypatch.setattr(cli_asv, "ask_machine", lambda: MACHINE.model_copy(update={"nvml_gpus": ("NVIDIA H100",)}))
    code, _, err = call("asv-machine", "--machine-file", "machines.json")
    assert (code, list(tmp_path.iterdir())) == (3, [])
    assert err.startswith("dpbench: NVML sees NVIDIA H100, but torch 2.13.0 can use no GPU")


def test_records_become_a_file_of_asv(call, stamped, tmp_path):
    code, out, err = call("asv-export", records(tmp_path / "r.jsonl"), *stamped)
    assert (code, out) == (0, "results/asv/here/01234567-dpbench-records-py3.11.json\n")
    assert (tmp_path / out.strip()).is_file()
    files = "results/asv/benchmarks.json and results/asv/here/machine.json"
    first = "first: asv run --bench just-discover"
    assert err == f"dpbench: warning: asv does not read these results without {files}; {first}\n"
    discovered(tmp_path)
    assert call("asv-export", records(tmp_path / "r.jsonl"), *stamped) == (0, out, "")


def test_without_anything_to_write_the_reasons_are_told(call, stamped, tmp_path):
    code, out, err = call("asv-export", records(tmp_path / "r.jsonl", dirty=True), "--json", *stamped)
    assert code == 1
    assert json.loads(out)["written"] == []
    assert err == "dpbench: warning: 1 records: no clean commit: the tree had changes, or there is no repository\n"


def discovered(folder):
    """What `asv run --bench just-discover` writes."""
    (folder / "results/asv/here").mkdir(parents=True, exist_ok=True)
    (folder / "results/asv/here/machine.json").write_text("{}")
    (folder / "results/asv/benchmarks.json").write_text(json.dumps({STEP_TIME: {"unit": "seconds"}, "version": 2}))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["asv-export", "none.jsonl", "--machine", "here"], "none.jsonl: cannot be read"),
        (
            ["asv-export", "r.jsonl", "--machine", "there"],
            "--machine: 'there' is not in machines.json; allowed: here, or",
        ),
        (
            ["asv-export", "r.jsonl", "--machine-file", "none"],
            "none: cannot be read: No such file or directory; first:",
        ),
        (["asv-machine", "--machine", "a/b"], "--machine: 'a/b' is not a name for a machine"),
        (["asv-machine", "--machine-file", "r.jsonl"], "r.jsonl: has version None; allowed: 1"),
    ],
)
def test_bad_input_is_one_line(call, stamped, tmp_path, words, text):
    records(tmp_path / "r.jsonl")
    given = words if "--machine-file" in words else [*words, "--machine-file", "machines.json"]
    code, out, err = call(*given)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"dpbench: {text}")
