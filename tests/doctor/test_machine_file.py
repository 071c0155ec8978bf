"""``dpbench doctor --machine-file``: paths, machines and children that fail are one line each."""

from pathlib import Path

import pytest

from dpbench.doctor.machine_file import ask_measurements, check_machine, check_path, write_machine_file
from dpbench.doctor.measured import MeasureRequest
from dpbench.errors import ExitCode, UnusableMachineError, WrongInputError
from dpbench.projection.described.machine_file import load_machine
from dpbench.sweep.machine_info import Accelerator, MachineInfo
from tests.doctor.making_machines import machine_of
from tests.fakes import ended

PLAIN = MachineInfo(python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=1 << 30)


def with_devices(*names):
    accelerators = tuple(Accelerator(device=name, name="Wizard", memory_bytes=1) for name in names)
    return PLAIN.model_copy(update={"accelerators": accelerators})


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("this.txt", "this.txt' is not allowed; allowed: a path that ends with .toml, in a folder that exists"),
        ("no/folder/this.toml", "no/folder' is no folder"),
        ("file/this.toml", "file' is no folder"),
        ("folder.toml", "folder.toml' is not a regular file"),
    ],
)
def test_a_wrong_path_is_one_line_before_anything_is_measured(tmp_path, path, complaint):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(WrongInputError) as error:
        check_path(tmp_path / path)
    assert str(error.value).startswith("machine-file: '")
    assert complaint in str(error.value)
    assert error.value.exit_code == ExitCode.WRONG_INPUT


def test_a_path_may_be_new_or_be_replaced(tmp_path, monkeypatch):
    check_path(tmp_path / "this.toml")
    (tmp_path / "this.toml").write_text("old")
    check_path(tmp_path / "this.toml")
    monkeypatch.chdir(tmp_path)
    check_path(Path("this.toml"))


def test_a_machine_without_accelerators_cannot_be_described():
    with pytest.raises(UnusableMachineError) as error:
        check_machine(PLAIN.model_copy(update={"torch_error": "the driver is too old"}))
    assert str(error.value) == (
        "machine-file: there is no accelerator that torch can use, so there is nothing to describe "
        "(the driver is too old); lanes of the CPU cannot be projected"
    )
    assert error.value.exit_code == ExitCode.FAILED
    with pytest.raises(UnusableMachineError, match="devices of type xpu cannot be measured; allowed: cuda"):
        check_machine(with_devices("xpu:0"))
    check_machine(with_devices("cuda:0", "cuda:1"))


class Children:
    """A launcher whose children end as given; `requests` are those they got."""

    def __init__(self, *ends):
        self._ends = iter(ends)
        self.requests = []

    def __call__(self, command, stdin_text, timeout_s):
        assert command[-1] == "dpbench.doctor.child.measure_machine"
        self.requests.append(MeasureRequest.model_validate_json(stdin_text).with_collectives)
        return next(self._ends)


GOOD = ended(0, machine_of(2).model_dump_json().encode())
CRASH = ended(-11, b"", tail=b"Xid 79\nGPU has fallen off the bus\n")


def test_the_childs_measurements_arrive_whole():
    children = Children(GOOD)
    assert ask_measurements(2, launch=children) == machine_of(2)
    assert children.requests == [True]


def test_a_child_that_several_devices_killed_is_started_again_without_nccl():
    children = Children(CRASH, GOOD)
    assert ask_measurements(2, launch=children) == machine_of(2)
    assert children.requests == [True, False]


@pytest.mark.parametrize("devices", [1, 2])
def test_a_child_that_fails_is_one_line_with_its_last_words(devices):
    children = Children(CRASH, CRASH)
    with pytest.raises(UnusableMachineError, match=r"measuring this machine failed: .*SIGSEGV.*fallen off the bus"):
        ask_measurements(devices, launch=children)
    assert children.requests == [True, False][:devices]


def test_the_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "this.toml"
    path.write_text("old")
    with pytest.raises(UnusableMachineError):
        write_machine_file(path, machine_of(operators=()))
    assert path.read_text() == "old"
    write_machine_file(path, machine_of(2))
    assert load_machine(str(path)).devices == 2
    assert [each.name for each in tmp_path.iterdir()] == ["this.toml"]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(WrongInputError, match=r"machine-file: '.*this.toml': .*; allowed: a file that can be written"):
        write_machine_file(tmp_path / "no" / "this.toml", machine_of())
    assert list(tmp_path.iterdir()) == []
