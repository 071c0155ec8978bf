"""`dpbench asv-machine`: what it prints and the exit code, without children."""

import json

import pytest

from dpbench.cases.machine_info import MachineInfo
from dpbench.cli import asv as cli_asv

MACHINE = MachineInfo(python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=2**30)


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    monkeypatch.setattr(cli_asv, "ask_machine", lambda: MACHINE)


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
