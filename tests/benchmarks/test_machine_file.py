"""The file of a measured machine: it loads and gives back the numbers; what is wrong is one line."""

import subprocess
import sys
import tomllib
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.instruments.gate_plants import ROOT
from benchmarks.machine_file import (
    MeasureRequest,
    ask_measured,
    check_path,
    generation_of,
    machine_text,
    write_machine_file,
)
from dpbench.errors import ExitCode, UnusableMachineError, WrongInputError
from dpbench.projection.machine import Kind
from dpbench.projection.machine_file import known_parts, load_machine
from dpbench.text.outside import quoted
from tests.benchmarks.machines import machine_of
from tests.fakes import ended

PARTS = known_parts()


@pytest.fixture
def described(tmp_path):
    """Return a function from measurements to the machine in the file that describes them."""

    def call(measured):
        file = tmp_path / "this.toml"
        file.write_text(machine_text(measured, PARTS))
        return load_machine(str(file))

    return call


def about(value):
    return pytest.approx(value, rel=1e-3)


def all_pairs(devices, kind):
    return tuple(f"{a}-{b} {kind}" for a, b in combinations(range(devices), 2))


def test_a_projected_product_and_add_reach_the_measured_rates(described):
    machine = described(machine_of())
    device = machine.device
    assert (machine.devices, machine.ring, device.memory.mid) == (1, None, 2**34)
    reached = device.peak["float32"].mid * device.efficiency.flop[Kind.MATMUL].mid
    assert (reached, device.peak["tf32"].mid / device.peak["float32"].mid) == (about(1e13), about(5))
    assert device.bandwidth.mid * device.efficiency.byte[Kind.ELEMENTWISE].mid == about(1e12)
    assert (device.gap.low, device.gap.mid, device.gap.high) == (about(1.84e-6), about(2e-6), about(2.16e-6))
    assert "measured by benchmarks.machine_file 2026-11-23 on Wizard 9000 with torch 2.13.0" in device.bandwidth.source
    assert machine.notes[0] == "1 x Wizard 9000; a CPU; measured on 2026-11-23"
    assert "host, taken as epyc-rome, and efficiencies, taken as ampere-a100," in machine.notes[1]


def test_two_devices_behind_pcie(described):
    machine = described(machine_of(2))
    assert {name.partition(".")[0] for name in machine.links} == {"pcie"}
    assert machine.routes[0, 1] == ("pcie.0.up", "pcie.1.down")
    assert machine.links["pcie.0.up"].bandwidth.mid == about(8e9)
    assert machine.ring is not None
    assert (machine.ring.hop, machine.ring.bus_bandwidth.mid) == ("pcie", about(6e9))


def test_devices_without_peer_access_copy_through_the_host(described):
    machine = described(machine_of(3, is_peer=False))
    assert "staged.0" in machine.routes[0, 1]
    assert machine.links["staged.0"].bandwidth.mid == about(8e9)
    assert machine.links["pcie.0.up"].bandwidth.mid == about(22e9)  # not measured


def test_nvlinks_of_a_mesh_share_the_rate_of_their_pair(described):
    machine = described(machine_of(3, links=("0-1 NV2", "0-2 NV1", "1-2 NV1")))
    assert machine.links["nvlink.0-1"].bandwidth.mid == about(8e9)
    assert machine.links["nvlink.0-2"].bandwidth.mid == about(4e9)
    assert machine.ring is not None
    assert machine.ring.hop == "nvlink"


def test_more_links_than_a_device_has_end_at_a_switch(described):
    machine = described(machine_of(3, links=all_pairs(3, "NV18")))
    assert machine.routes[0, 2] == ("nvswitch.0.out", "nvswitch.2.in")
    assert machine.links["nvswitch.0.out"].bandwidth.mid == about(8e9)
    assert described(machine_of(4, links=all_pairs(4, "NV6"))).routes[0, 2] == ("nvlink.0-2",)


def test_a_ring_is_over_pcie_if_nvlinks_join_pairs_alone(described):
    machine = described(machine_of(4, links=("0-1 NV4", "0-2 SYS", "2-3 NV4"), copy_pair=(2, 3)))
    assert (machine.routes[2, 3], machine.ring.hop) == (("nvlink.2-3",), "pcie")
    assert machine.links["nvlink.2-3"].bandwidth.mid == about(8e9)


def test_without_nccl_the_ring_is_a_share_of_one_link(described):
    ring = described(machine_of(2, all_reduce=())).ring
    assert ring is not None
    assert (ring.bus_bandwidth.mid, ring.bus_bandwidth.high) == (about(0.85 * 8e9), about(0.97 * 8e9))
    assert "NCCL was not measured" in ring.bus_bandwidth.source
    assert described(machine_of(2, all_reduce=(), copies=())).ring.bus_bandwidth.mid == about(0.85 * 22e9)


@pytest.mark.parametrize(
    ("name", "capability", "part"),
    [
        ("NVIDIA H200", (9, 0), "hopper-h200"),
        ("NVIDIA H100 80GB HBM3", (9, 0), "hopper"),
        ("NVIDIA L40", (8, 9), "ampere-ada-desktop"),
        ("NVIDIA L4", (8, 9), "ada-l4"),
        ("Tesla T4", (7, 5), "turing-t4"),
        ("NVIDIA TITAN RTX", (7, 5), "turing-desktop"),
        ("Tesla V100-SXM2-32GB", (7, 0), "volta"),
        ("Tesla P100-PCIE-16GB", (6, 0), "pascal"),
        ("NVIDIA B200", (10, 0), "hopper"),
        ("a CPU", None, "pascal"),
    ],
)
def test_the_nearest_generation_has_parts(described, name, capability, part):
    measured = machine_of(2, names=(name, name), capability=capability, links=("0-1 NV1",), copies=())
    assert generation_of(measured).efficiency == part
    assert described(measured).devices == 2


def test_lanes_of_the_cpu_are_called_so(described):
    assert described(machine_of(2, capability=None)).notes[0].startswith("no accelerator: two lanes of the CPU")


def test_names_and_reasons_may_hold_any_text():
    name = 'Wi"z\\ard\n\x1b[31m 9000 \x7f ü'
    text = machine_text(machine_of(2, names=(name, "Other"), failures={"all-reduce": "no\nNCCL"}), PARTS)
    notes = tomllib.loads(text)["notes"]
    assert "not measured: all-reduce: no NCCL" in notes
    assert any("the devices differ; all are described as the first one" in note for note in notes)
    assert all(line.isprintable() for line in text.splitlines())


ODD = st.lists(st.sampled_from([0.0, -1.0, 1e-300, 1e-9, 1e-3, 1.0, 1e10, 1e300, float("inf")]), max_size=3).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4), st.booleans(), st.sampled_from(["SYS", "NV4", "NV18"]))
def test_odd_measurements_are_a_file_that_loads_or_one_line(tmp_path_factory, data, devices, is_peer, kind):
    odd = {name: data.draw(ODD) for name in ("memory", "copies", "gap_s", "all_reduce")}
    products = {"float32": data.draw(ODD), "tf32": data.draw(ODD)}
    measured = machine_of(devices, is_peer=is_peer, links=all_pairs(devices, kind), **odd, products=products)
    file = tmp_path_factory.mktemp("odd") / "this.toml"
    is_sound = 1e10 in products["float32"] and 1e10 in odd["memory"]
    with nullcontext() if is_sound else pytest.raises(UnusableMachineError, match="was not measured"):
        write_machine_file(file, measured)
    assert file.exists() is is_sound
    assert not is_sound or load_machine(str(file)).devices == devices


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"products": {}}, "machine-file: device.peak.float32 was not measured: out of memory"),
        ({"memory": ()}, "machine-file: device.bandwidth was not measured: no possible number was read"),
        ({"memory_bytes": 0}, "machine-file: device.memory was not measured: no possible number was read"),
    ],
)
def test_what_nothing_can_stand_for_is_one_line_and_leaves_the_old_file(tmp_path, change, line):
    path = tmp_path / "this.toml"
    path.write_text("old")
    with pytest.raises(UnusableMachineError) as error:
        write_machine_file(path, machine_of(failures={"product": "out of memory"}, **change))
    assert (str(error.value), error.value.exit_code) == (line, ExitCode.FAILED)
    assert path.read_text() == "old"


def test_a_file_is_replaced_whole_and_one_that_cannot_be_written_is_one_line(tmp_path):
    path = tmp_path / "this.toml"
    path.write_text("old")
    write_machine_file(path, machine_of(2))
    assert load_machine(str(path)).devices == 2
    assert [file.name for file in tmp_path.iterdir()] == ["this.toml"]
    with pytest.raises(WrongInputError, match=r"machine-file: '.*this.toml': .*; allowed: a file that can be written"):
        write_machine_file(tmp_path / "no" / "this.toml", machine_of())


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("this.txt", "this.txt' is not allowed; allowed: a path that ends with .toml"),
        ("no/folder/this.toml", "no/folder/this.toml' cannot be written: No such file or directory"),
        ("file/this.toml", "file/this.toml' cannot be written: Not a directory"),
        ("folder.toml", "folder.toml' cannot be written: Is a directory"),
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
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "this.toml").write_text("old")
    check_path(tmp_path / "this.toml")
    monkeypatch.chdir(tmp_path)
    check_path(Path("this.toml"))
    assert (tmp_path / "this.toml").read_text() == "old"


class Children:
    """A launcher whose children end as given; `requests` are those they got."""

    def __init__(self, *ends):
        self._ends = iter(ends)
        self.requests = []

    def __call__(self, command, stdin_text, timeout_s):
        assert command[-1] == "benchmarks.measure_machine"
        self.requests.append(MeasureRequest.model_validate_json(stdin_text).with_all_reduce)
        return next(self._ends)


GOOD = ended(0, machine_of(2).model_dump_json().encode())
CRASH = ended(-11, b"", tail=b"Xid 79\nGPU has fallen off the bus\n")


def test_the_childs_measurements_arrive_whole():
    children = Children(GOOD)
    assert ask_measured(launch=children) == machine_of(2)
    assert children.requests == [True]


def test_a_child_that_died_is_started_again_without_nccl():
    children = Children(CRASH, GOOD)
    assert ask_measured(launch=children) == machine_of(2)
    assert children.requests == [True, False]


def test_a_child_that_fails_twice_is_one_line_with_its_last_words():
    with pytest.raises(UnusableMachineError, match=r"measuring this machine failed: .*SIGSEGV.*fallen off the bus"):
        ask_measured(launch=Children(CRASH, CRASH))


def run(*words):
    command = [sys.executable, "-m", "benchmarks.machine_file", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_file_of_two_lanes_of_the_cpu_is_written_and_loads(tmp_path):
    path = tmp_path / "this.toml"
    done = run(path)
    assert (done.returncode, done.stderr, [file.name for file in tmp_path.iterdir()]) == (0, "", ["this.toml"])
    assert f"{path}: written\nno accelerator: two lanes of the CPU" in done.stdout
    assert load_machine(str(path)).devices == 2


def test_a_wrong_path_is_one_line_and_writes_nothing(tmp_path):
    done = run(tmp_path / "this.json")
    path = quoted(str(tmp_path / "this.json"))
    line = f"machine-file: {path} is not allowed; allowed: a path that ends with .toml\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert list(tmp_path.iterdir()) == []
