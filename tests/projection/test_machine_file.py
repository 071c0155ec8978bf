"""A user's machine file: its values in SI units, and one line for each kind of mistake."""

import re
from pathlib import Path

import pytest

from dpbench.errors import ExitCode, WrongInputError
from dpbench.projection.machine import HostCost, Kind, Machine
from dpbench.projection.machine_file import load_machine, machine_names
from tests.projection.machine_text import INLINE, quantity


def loaded(folder: Path, text: str) -> Machine:
    file = folder / "mine.toml"
    file.write_text(text)
    return load_machine(str(file))


def refused(folder: Path, text: str) -> str:
    with pytest.raises(WrongInputError) as error:
        loaded(folder, text)
    assert error.value.exit_code == ExitCode.WRONG_INPUT
    line = str(error.value)
    assert line.isprintable()
    assert line.startswith(f"{folder / 'mine.toml'}: ")
    return line.removeprefix(f"{folder / 'mine.toml'}: ")


def test_a_file_with_all_parts_inline_has_its_numbers_in_si_units(tmp_path: Path) -> None:
    machine = loaded(tmp_path, INLINE)
    assert (machine.name, machine.devices, machine.notes) == ("mine", 4, ("mine",))
    assert machine.device.memory.mid == 2 * 2**30
    assert machine.device.bandwidth.mid == 100e9
    assert machine.device.gap.mid == pytest.approx(1.5e-6)
    assert {name: peak.mid for name, peak in machine.device.peak.items()} == {"float32": 2e12}
    assert set(machine.device.efficiency.flop) == set(machine.device.efficiency.byte) == set(Kind)
    assert set(machine.host.costs) == set(HostCost)
    assert {round(cost.mid * 1e9) for cost in machine.host.costs.values()} == {10_000}
    assert machine.ring is not None
    assert (machine.ring.bus_bandwidth.low, machine.ring.bus_bandwidth.high) == (8e9, 10e9)
    rates = {name.partition(".")[0]: link.bandwidth.mid for name, link in machine.links.items()}
    assert rates == {"pcie": 10e9, "uplink": 10e9, "socket": 10e9, "nvlink": 20e9}
    assert machine.device.gap.source == "x"


def test_parts_of_one_file_may_be_named_and_inline(tmp_path: Path) -> None:
    device = INLINE[INLINE.index("[device]") : INLINE.index("[host]")]
    machine = loaded(tmp_path, 'device = "V100-SXM"\n' + INLINE.replace(device, ""))
    assert machine.device.peak["float32"].mid == 15.7e12
    assert machine.host.factor.source == "x"


def single_device() -> str:
    start, ring = INLINE.index("nvlinks"), INLINE.index("[ring]")
    text = INLINE[:ring].replace(INLINE[start : INLINE.index("overlap")], "")
    text = re.sub(r"^(uplink|socket|nvlink) = .*\n", "", text, flags=re.MULTILINE)
    return (
        text.replace("devices = 4", "devices = 1").replace("[[0, 1], [2, 3]]", "[[0]]").replace("[[0], [1]]", "[[0]]")
    )


def test_a_single_device_has_no_ring(tmp_path: Path) -> None:
    machine = loaded(tmp_path, single_device())
    assert (machine.ring, set(machine.routes)) == (None, {(None, 0), (0, None)})


@pytest.mark.parametrize(("key", "names"), [("ring", "dgx1-volta-8, "), ("nccl", "tuning")])
def test_several_devices_need_a_ring_and_its_constants(tmp_path: Path, key: str, names: str) -> None:
    head, _, rest = INLINE.partition(f"[{key}]")
    text = head + "".join(rest.partition("[nccl]")[1:])
    assert refused(tmp_path, text).startswith(f"{key}: is missing; allowed: a table, or one of {names}")


def test_a_single_device_has_no_nvswitch(tmp_path: Path) -> None:
    line = refused(tmp_path, "nvswitch_links = 6\n" + single_device())
    assert line == "nvswitch_links: 6 is not allowed beside nvlinks or for one device; allowed: leave it out"


MEMORY = f"memory = {quantity(2, 'GiB')}"
GAP = f"gap = {quantity(1500, 'ns')}"
# The mistake: what is replaced, by what, and a part of the line.
MISTAKES = {
    "no TOML": ("devices = 4", "devices =", "is not TOML"),
    "missing number": (MEMORY, "", "device.memory: missing"),
    "missing number that may be a name": (GAP, "", "device.gap: missing"),
    "unknown name of a number": (GAP, 'gap = "queue"', "device.gap: 'queue' is not allowed, did you mean 'queued'?"),
    "missing low": (GAP, 'gap = { mid = 1, high = 1, unit = "us", source = "x" }', "device.gap.low: missing"),
    "a bare number": (GAP, "gap = 3", "device.gap: 3 is not allowed; allowed: a table with unit, low, mid, high,"),
    "negative": (GAP, f"gap = {quantity(-1, 'us')}", "device.gap.low: -1.0 is not allowed; allowed: 1e-09 to 1e+09,"),
    "zero": (GAP, f"gap = {quantity(0, 'us')}", "device.gap.low: 0.0 is not allowed; allowed: 1e-09 to 1e+09, low <="),
    "infinite": (GAP, 'gap = { low = 1, mid = 1, high = inf, unit = "us", source = "x" }', "device.gap.high: inf is"),
    "no number": (GAP, 'gap = { low = nan, mid = 1, high = 1, unit = "us", source = "x" }', "device.gap.low: nan is"),
    "a truth value": (
        GAP,
        'gap = { low = true, mid = 1, high = 1, unit = "us", source = "x" }',
        "device.gap.low: Input should be a valid number, not True",
    ),
    "a text": (
        GAP,
        'gap = { low = "1", mid = 1, high = 1, unit = "us", source = "x" }',
        "device.gap.low: Input should be a valid number, not '1'",
    ),
    "huge": (GAP, f"gap = {quantity(1e300, 's')}", "device.gap.low: 1e+300 is not allowed"),
    "too small": (GAP, f"gap = {quantity(1e-300, 's')}", "device.gap.low: 1e-300 is not allowed; allowed: 1e-15 to"),
    "400 digits": (GAP, f"gap = {quantity(10**399, 'us')}", "device.gap.low: Input should be a valid number, not"),
    "devices of 400 digits": ("devices = 4", f"devices = {10**399}", "devices: Input should be less than or equal to"),
    "low > mid": (GAP, f"gap = {quantity(3, 'us', 2, 4)}", "device.gap.mid: 2.0 is not allowed; allowed: 3 to 1e+09,"),
    "mid > high": (GAP, f"gap = {quantity(1, 'us', 2, 1.5)}", "device.gap.high: 1.5 is not allowed; allowed: 2 to"),
    "no unit": (GAP, 'gap = { low = 1, mid = 1, high = 1, source = "x" }', "device.gap.unit: missing"),
    "wrong unit": (GAP, f"gap = {quantity(1, 'GB/s')}", "device.gap: unit: 'GB/s' is not allowed; allowed: ns, us,"),
    "no source": (GAP, 'gap = { low = 1, mid = 1, high = 1, unit = "us" }', "device.gap.source: missing"),
    "empty source": (GAP, f"gap = {quantity(1, 'us', source=' ')}", "device.gap.source: String should match pattern"),
    "unknown key of a number": (GAP, GAP.replace(" }", ", unti = 1 }"), "device.gap: unknown key 'unti', did you mean"),
    "unknown link": ("pcie = {", 'pcie = "pcie9" #{', "links.pcie: 'pcie9' is not allowed, did you mean 'pcie5'?"),
    "unknown key": ("devices = 4", "devices = 4\nswitch = 1", "unknown key 'switch', did you mean 'switches'?;"),
    "unknown kind of link": ("pcie = {", 'pci = "pcie3"\npcie = {', "links: 'pci' is not allowed: no copy takes it,"),
    "unknown cost": ("stream_wait =", "stream_wai =", "host.costs.stream_wai: Input should be 'forward_python',"),
    "unknown peak": ("float32 =", "float16 = 1\nfloat32 =", "device.peak.float16: Input should be 'float32', 'tf32'"),
    "no peak": ("[device.peak]\nfloat32", "[device.peak]\ntf32", "device.peak: float32 is missing; allowed: float32"),
    "wrong hop": ('hop = "pcie"', 'hop = "infiniband"', "ring.hop: Input should be 'nvlink' or 'pcie', not"),
    "no ring": ("[ring]", "[rings]", "unknown key 'rings', did you mean 'ring'?; allowed: devices, machines,"),
    "no devices": ("devices = 4", "devices = 0", "devices: Input should be greater than or equal to 1, not 0"),
    "devices as text": ("devices = 4", 'devices = "4"', "devices: Input should be a valid integer, not '4'"),
    "a truth value as devices": ("devices = 4", "devices = true", "devices: Input should be a valid integer, not True"),
    "peer as text": ("peer = true", 'peer = "yes"', "peer: Input should be a valid boolean, not 'yes'"),
    "no peer": ("peer = true", "", "peer: missing"),
    "a switch with an unknown device": ("[[0, 1], [2, 3]]", "[[0, 1], [2, 3, 4]]", "switches: [[0, 1], [2, 3, 4]] is"),
    "a switch with a negative device": ("[[0, 1], [2, 3]]", "[[0, 1], [2, 3, -1]]", "switches: [[0, 1], [2, 3, -1]]"),
    "a device on two switches": ("[[0, 1], [2, 3]]", "[[0, 1], [2, 3, 1]]", "switches: [[0, 1], [2, 3, 1]] is not"),
    "a device on no switch": ("[[0, 1], [2, 3]]", "[[0, 1], [2]]", "switches: [[0, 1], [2]] is not allowed; allowed:"),
    "an empty switch": ("[[0, 1], [2, 3]]", "[[0, 1], [2, 3], []]", "switches: [[0, 1], [2, 3], []] is not allowed;"),
    "switches as numbers": ("[[0, 1], [2, 3]]", "[0, 1, 2, 3]", "switches.0: Input should be a valid list, not 0"),
    "a socket with an unknown switch": (
        "[[0], [1]]",
        "[[0], [2]]",
        "sockets: [[0], [2]] is not allowed; allowed: lists that hold each of the switches",
    ),
    "an NVLink with itself": ("[[0, 1, 2]]", "[[1, 1, 2]]", "nvlinks: [1, 1, 2] is not allowed; allowed: two devices"),
    "an NVLink to an unknown device": ("[[0, 1, 2]]", "[[0, 4, 2]]", "nvlinks: [0, 4, 2] is not allowed; allowed: two"),
    "an NVLink twice": ("[[0, 1, 2]]", "[[0, 1, 2], [1, 0, 1]]", "nvlinks: [1, 0, 1] is not allowed; allowed: two"),
    "an NVLink without number": ("[[0, 1, 2]]", "[[0, 1]]", "nvlinks.0.2: missing"),
    "an NVLink of no link": ("[[0, 1, 2]]", "[[0, 1, 0]]", "nvlinks.0.2: Input should be greater than or equal to 1,"),
    "NVLinks and NVSwitch": ("peer = true", "peer = true\nnvswitch_links = 6", "nvswitch_links: 6 is not allowed"),
    "no NVLink kind": ("nvlink = {", "#", "links: 'nvlink' is missing; allowed: nvlink, pcie, socket, uplink"),
    "no uplink kind": ("uplink = {", "#", "links: 'uplink' is missing; allowed: nvlink, pcie, socket, uplink"),
    "no socket kind": ("socket = {", "#", "links: 'socket' is missing; allowed: nvlink, pcie, socket, uplink"),
    "no staged kind": ("peer = true", "peer = false", "links: 'socket' is not allowed: no copy takes it; allowed:"),
    "a needless kind": ("pcie = {", 'network = "network100"\npcie = {', "links: 'network' is not allowed: no copy"),
    "several machines without network": (
        "peer = true",
        "peer = true\nmachines = 2",
        "links: 'network' is missing; allowed: network, nvlink, pcie, socket, uplink",
    ),
    "notes as text": ('notes = ["mine"]', 'notes = "mine"', "notes: Input should be a valid list, not 'mine'"),
}


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in INLINE
    assert refused(tmp_path, INLINE.replace(old, new, 1)).startswith(said)


def test_a_share_above_one_is_refused(tmp_path: Path) -> None:
    old, new = (f"matmul = {quantity(share, 'ratio')}" for share in (0.5, 1.5))
    line = "device.efficiency.flop.matmul: high: 1.5 is not allowed; allowed: at most 1"
    assert refused(tmp_path, INLINE.replace(old, new, 1)) == line


def test_an_unknown_device_lists_the_known_ones(tmp_path: Path) -> None:
    device = INLINE[INLINE.index("[device]") : INLINE.index("[host]")]
    line = refused(tmp_path, 'device = "V100-SXN"\n' + INLINE.replace(device, ""))
    said = "device: 'V100-SXN' is not allowed, did you mean 'V100-SXM'?; allowed: a table, or one of P100-SXM, "
    assert line.startswith(said)


@pytest.mark.parametrize("name", ["8xV100", "parts", "", "../machines/8xV100-sxm", "\x1b[31m"])
def test_an_unknown_machine_lists_the_known_ones(name: str) -> None:
    with pytest.raises(WrongInputError) as error:
        load_machine(name)
    line = str(error.value)
    assert line.startswith("machine: ")
    assert ", ".join(machine_names()) in line
    assert line.isprintable()


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WrongInputError, match=r"none\.toml: cannot be read: No such file"):
        load_machine(str(tmp_path / "none.toml"))
