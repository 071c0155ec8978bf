import json
import stat

import pytest

from dpbench.asv.asv_machine import read_machines, stamp_machine
from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.errors import WrongInputError

CPU_MACHINE = MachineInfo(python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=2**30)
GPUS = tuple(Accelerator(device=f"cuda:{i}", name="NVIDIA H100", memory_bytes=2**36) for i in range(2))
GPU_MACHINE = CPU_MACHINE.model_copy(update={"accelerators": GPUS, "driver": "550.54", "nccl": "2.27.3"})


def test_gpus_driver_nccl_and_torch_are_added_to_asvs_facts(tmp_path):
    path = tmp_path / "machines.json"
    entry = stamp_machine(path, "here", GPU_MACHINE)
    assert read_machines(path) == {"here": entry}
    assert json.loads(path.read_text())["version"] == 1
    assert {"machine", "os", "arch", "cpu", "num_cpu", "ram"} < set(entry)
    assert (
        entry
        | {
            "machine": "here",
            "cpu": "a CPU",
            "gpu": "NVIDIA H100",
            "num_gpu": "2",
            "driver": "550.54",
            "nccl": "2.27.3",
            "torch": "2.13.0",
        }
        == entry
    )


def test_a_machine_without_gpus_has_none_in_each_field(tmp_path):
    entry = stamp_machine(tmp_path / "machines.json", "here", CPU_MACHINE)
    assert [entry[name] for name in ("gpu", "num_gpu", "driver", "nccl")] == ["none", "0", "none", "none"]


def test_other_machines_and_earlier_values_stay(tmp_path):
    path = tmp_path / "machines.json"
    old = {"there": {"machine": "there", "own": "x"}, "here": {"machine": "here", "cpu": "as I call it"}}
    path.write_text(json.dumps({**old, "version": 1}))
    path.chmod(0o600)
    entry = stamp_machine(path, "here", CPU_MACHINE)
    assert entry["cpu"] == "as I call it"
    assert read_machines(path)["there"] == old["there"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_asv_reads_the_file(tmp_path):
    from asv.machine import Machine, MachineCollection

    path = tmp_path / "machines.json"
    stamp_machine(path, "here", GPU_MACHINE)
    assert MachineCollection.load("here", _path=str(path))["gpu"] == "NVIDIA H100"
    assert Machine.load(machine_name="here", _path=str(path)).nccl == "2.27.3"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "is not JSON"),
        ('{"version": 2}', "has version 2; allowed: 1"),
        ("[]", "has version None; allowed: 1"),
        ('{"here": {"gpu": 1}, "version": 1}', "here.gpu is 1: Input .*; allowed: texts by name"),
    ],
)
def test_a_file_that_cannot_be_read_does_not_change(tmp_path, text, fault):
    path = tmp_path / "machines.json"
    path.write_text(text)
    with pytest.raises(WrongInputError, match=f"machines.json: {fault}"):
        stamp_machine(path, "here", CPU_MACHINE)
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["", "a/b", "..", "version"])
def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path, name):
    with pytest.raises(WrongInputError, match=r"--machine: .* is not a name for a machine; allowed"):
        stamp_machine(tmp_path / "machines.json", name, CPU_MACHINE)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_reported_in_one_line(tmp_path):
    with pytest.raises(WrongInputError, match="cannot be written"):
        stamp_machine(tmp_path / "none" / "machines.json", "here", CPU_MACHINE)
