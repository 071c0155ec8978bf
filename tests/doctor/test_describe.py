"""From measurements to a machine file: it loads, and gives back the numbers."""

import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.doctor.describe import machine_text
from dpbench.doctor.described_device import NothingMeasuredError, architecture_of
from dpbench.doctor.described_links import groups
from dpbench.doctor.measured import Measurements, Slope, TimedOperator, Together
from dpbench.projection.described.machine import HostCost, Kind
from dpbench.projection.described.machine_file import known_parts, load_machine
from tests.doctor.making_machines import EACH, SIZE, machine_of

PARTS = known_parts()
NAMES = {"device", "host", "ring", "nccl", "overlap", "skew", "gap", "factor", "costs", "efficiency", "links"}


@pytest.fixture
def described(tmp_path):
    """Return a function from measurements to the machine in the file that describes them."""

    def call(found):
        file = tmp_path / "this.toml"
        file.write_text(machine_text(found, PARTS))
        return load_machine(str(file))

    return call


def about(value):
    return pytest.approx(value, rel=1e-3)


def test_a_single_device_gives_back_its_numbers(described):
    machine = described(machine_of())
    device = machine.device
    assert (machine.devices, machine.ring, device.memory_bytes) == (1, None, 2**34)
    # the rate's 10 % quantile comes from the time's 90 % quantile
    assert (device.peaks["float32"].low, device.peaks["float32"].mid) == (about(1e13 / 1.08), about(1e13))
    assert device.peaks["float32"].high == about(1e13 / 0.92)
    assert device.peaks["tf32"].mid == about(5e13)
    assert device.bandwidth.mid == about(1e12)
    assert (device.gap.low, device.gap.mid, device.gap.high) == (about(1.84e-6), about(2e-6), about(2.16e-6))
    assert machine.kinds["pcie"].bandwidth.mid == about(SIZE / 0.01)
    assert machine.kinds["pcie"].latency.mid == about(10e-6)
    assert (machine.skew.low, machine.skew.high, device.factor.mid, machine.host.factor.mid) == (1, 1, 1, 1)
    assert "measured by dpbench doctor 2026-11-23 on Wizard 9000 with torch 2.13.0" in device.bandwidth.source
    assert machine.notes == ("1 x Wizard 9000; a CPU; measured on 2026-11-23",)


def test_efficiencies_are_shares_of_what_large_operators_reach(described):
    device = described(machine_of()).device
    assert device.flop_efficiency[Kind.MATMUL].mid == about(1)
    assert device.flop_efficiency[Kind.BATCHED_MATMUL].mid == about(0.5)
    assert device.flop_efficiency[Kind.CONVOLUTION].mid == about(0.2)  # of tf32
    assert device.byte_efficiency[Kind.MOVE].mid == about(1)
    for kind in (Kind.NORM, Kind.SOFTMAX, Kind.ELEMENTWISE, Kind.REDUCTION, Kind.INDEX, Kind.MATMUL):
        assert device.byte_efficiency[kind].mid == about(0.5)
    assert device.byte_efficiency[Kind.MATMUL].source.startswith("as element-wise operators: measured by")


def test_small_products_show_the_efficiency_without_the_gap(described):
    """10 us of products at half of 10 TFLOP/s, and 2 us of a gap; the large one has 1 by definition."""
    small = TimedOperator(kind=Kind.MATMUL, shape="small", flops=5e7, bytes=1e-3, seconds=(12e-6,) * 3)
    device = described(machine_of(operators=(*machine_of().operators, small))).device
    share = device.flop_efficiency[Kind.MATMUL]
    assert (share.low, share.mid, share.high) == (about(0.5),) * 3


def test_host_costs_are_the_calls_and_the_slopes(described):
    costs = described(machine_of(2)).host.costs
    assert {cost: round(costs[cost].mid * 1e9) for cost in costs if not costs[cost].source.startswith("not")} == {
        **{HostCost(name): 5000 for name in ("view", "copy", "event_record", "stream_wait", "stream_switch")},
        **{HostCost(name): 5000 for name in ("stream_lookup", "handle_lookup", "record_stream", "host_wait")},
        **{HostCost(name): 5000 for name in ("thread_start", "lock_handover")},
        HostCost.FORWARD_PYTHON: 20_000,
        HostCost.FORWARD_NATIVE: 10_000,
        HostCost.BACKWARD: 10_000,
        HostCost.BACKWARD_START: 50_000,
        HostCost.OPTIMISER_PARAMETER: 2000,
        HostCost.REPLICATE_MODULE: 20_000,
        HostCost.COLLECTIVE: 30_000,  # a call for two devices
        HostCost.ENGINE_HANDOVER: 15_000,
    }
    assert set(costs) == set(HostCost)


def test_a_cost_that_was_not_measured_follows_those_that_were(described):
    eager = PARTS["costs"]["eager"]
    doubled = {HostCost(name): (2e-6 * eager[name]["mid"],) for name in ("view", "copy", "event_record")}
    bare = machine_of(calls_s=doubled, slopes={}, forward_module_s=(), forward_builtin_s=())
    step = described(bare).host.costs[HostCost.STEP]
    assert (step.low, step.mid, step.high) == tuple(
        about(2e-6 * eager["step"][name]) for name in ("low", "mid", "high")
    )
    assert "costs.eager of dpbench/machines/parts.toml times 2," in step.source
    nothing = machine_of(calls_s={}, slopes={}, forward_module_s=(), forward_builtin_s=())
    assert described(nothing).host.costs[HostCost.STEP].mid == about(1e-6 * eager["step"]["mid"])


def test_a_slope_with_more_noise_than_time_is_not_a_cost(described):
    def costs_of(long_s):
        noisy = Slope(short=10, long=20, short_s=(2e-4,) * 3, long_s=long_s)
        return described(machine_of(slopes={HostCost.BACKWARD: noisy})).host.costs

    assert costs_of((3e-4, 3e-4, 1e-4))[HostCost.BACKWARD].mid == about(1e-5)
    for noise in ((3e-4, 1e-4, 1e-4), (2e-4,) * 3, ()):
        assert costs_of(noise)[HostCost.BACKWARD].source.startswith("not measured: costs.eager")
    assert costs_of((9e-4,) * 3)[HostCost.BACKWARD_START].source.startswith("not measured: costs.eager")


def test_two_devices_behind_pcie(described):
    machine = described(machine_of(2))
    assert set(machine.kinds) == {"pcie"}
    assert machine.kinds["pcie"].bandwidth.high > SIZE / 0.0088  # copies between the devices are in it
    assert machine.routes[0, 1] == ("pcie.0.up", "pcie.1.down")
    assert machine.ring is not None
    assert machine.ring.bus_bandwidth.mid == about(SIZE / 0.010)  # 2 (n - 1) / n is 1; the small one's 1 ms is off
    assert machine.ring.hop == "pcie"
    assert "NCCL's broadcast of 64 MiB reaches 6.71 GB/s" in machine.notes
    assert machine.nccl["ring_base_simple"].mid == about(8.4e-6)


def test_devices_without_peer_access_copy_through_the_host(described):
    machine = described(machine_of(2, peers=False))
    assert set(machine.kinds) == {"pcie", "staged"}
    assert "staged.0" in machine.routes[0, 1]
    assert machine.kinds["staged"].bandwidth.mid == about(SIZE / 0.008)
    assert machine.kinds["pcie"].bandwidth.mid == about(SIZE / 0.01)
    some = described(machine_of(3, peers={(0, 1), (1, 0)}))
    assert "staged" in some.kinds


def test_devices_that_are_slower_together_share_an_uplink(described):
    machine = described(machine_of(4, sharing=[(0, 1), (2, 3)]))
    assert machine.routes[None, 0] == ("uplink.0.down", "pcie.0.down")
    assert machine.routes[None, 3] == ("uplink.1.down", "pcie.3.down")
    assert machine.kinds["uplink"].bandwidth.mid == about(2 * SIZE / 0.02)
    assert any("to all devices at once" in note for note in machine.notes)


def test_numa_nodes_are_sockets_and_their_link_is_that_of_their_pairs(described):
    def pair_s(a, b):
        return 0.012 if a // 2 != b // 2 else 0.008

    machine = described(machine_of(4, nodes=(0, 0, 1, 1), pair_s=pair_s))
    assert set(machine.kinds) == {"pcie", "socket"}
    assert "socket.0-1" in machine.routes[0, 2]
    assert machine.kinds["socket"].bandwidth.mid == about(SIZE / 0.012)
    assert "socket" not in described(machine_of(4, nodes=(0, None, 1, 1), pair_s=pair_s)).kinds


def test_nvlinks_of_a_mesh_share_the_rate_of_their_pair(described):
    links = ("0-1 NV2", "0-2 NV1", "1-2 NV1")
    machine = described(machine_of(3, links=links, pair_s=lambda a, b: 0.001 if a + b == 1 else 0.002))
    assert machine.routes[0, 1] == ("nvlink.0-1",)
    assert machine.kinds["nvlinkx2"].bandwidth.mid == about(SIZE / 0.001)
    assert machine.kinds["nvlink"].bandwidth.mid == about(SIZE / 0.002)
    assert machine.ring is not None
    assert (machine.ring.hop, "ring_base_ll128" in machine.nccl) == ("nvlink", True)


def test_devices_whose_nvlinks_end_at_a_switch_share_a_port(described):
    links = ("0-1 NV18", "0-2 NV18", "1-2 NV18")
    shared = Together(devices=(1, 2), alone_s=(0.001,), together_s=(0.002,))
    machine = described(machine_of(3, links=links, pair_s=0.001, from_first=shared))
    assert machine.routes[0, 2] == ("nvswitch.0.out", "nvswitch.2.in")
    assert machine.kinds["nvlinkx1"].bandwidth.mid == about(SIZE / 0.001)
    apart = shared.model_copy(update={"together_s": (0.0011,)})
    mesh = described(machine_of(3, links=links, pair_s=0.001, from_first=apart))
    assert mesh.routes[0, 2] == ("nvlink.0-2",)


def test_without_nvml_a_fast_pair_has_nvlink(described):
    fast = machine_of(3, pair_s=lambda a, b: 0.001 if {a, b} == {0, 1} else 0.0095)
    machine = described(fast)
    assert (machine.routes[0, 1], machine.ring.hop) == (("nvlink.0-1",), "pcie")  # no ring over NVLink joins three
    named = fast.model_copy(update={"links": ("0-1 PIX", "0-2 SYS", "1-2 SYS")})
    assert set(described(named).kinds) == {"pcie"}


@pytest.mark.parametrize(("capability", "ll128"), [((7, 0), True), ((7, 5), False), ((8, 6), False), ((9, 0), True)])
def test_nccl_has_ll128_over_nvlink_of_server_cards(described, capability, ll128):
    machine = described(machine_of(2, links=("0-1 NV4",), capability=capability))
    assert ("ring_base_ll128" in machine.nccl) is ll128


def test_without_nccl_the_ring_is_a_share_of_the_slowest_neighbour(described):
    machine = described(machine_of(3, collectives=False, pair_s=lambda a, b: 0.012 if (a, b) == (2, 0) else 0.008))
    slowest = SIZE / 0.012
    ring = machine.ring
    assert ring is not None
    found = (ring.bus_bandwidth.low, ring.bus_bandwidth.mid, ring.bus_bandwidth.high)
    assert found == (about(0.6 * slowest), about(0.85 * slowest), about(slowest))
    assert "NCCL not measured" in ring.bus_bandwidth.source


def test_a_slow_device_shows_in_factor_and_skew(described):
    slow = tuple(0.12 * each for each in EACH)
    machine = described(machine_of(3, same_work_s=(tuple(0.1 * each for each in EACH),) * 2 + (slow,)))
    assert (machine.device.factor.low, machine.device.factor.mid, machine.device.factor.high) == (1, 1, about(1.2))
    assert machine.skew.mid == about(1.2)
    assert machine.skew.low >= 1


def test_kinds_that_were_not_measured_are_those_of_the_nearest_architecture(described):
    only = tuple(each for each in machine_of().operators if each.is_large)
    device = described(machine_of(operators=only)).device
    part = PARTS["efficiency"]["ampere-a100"]
    mid = part["flop"]["batched_matmul"]["mid"] / part["flop"]["matmul"]["mid"]
    assert device.flop_efficiency[Kind.BATCHED_MATMUL].mid == about(min(1, mid))
    norm = part["byte"]["norm"]["mid"] / part["byte"]["elementwise"]["mid"]
    assert device.byte_efficiency[Kind.NORM].mid == about(norm)
    assert "efficiency.ampere-a100 of dpbench/machines/parts.toml" in device.byte_efficiency[Kind.NORM].source


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
    ],
)
def test_the_nearest_architecture(name, capability, part):
    assert architecture_of(name, capability) == part
    assert part in PARTS["efficiency"]


def test_groups_are_joined_by_chains_of_pairs():
    assert groups(range(5), [(0, 1), (3, 4), (1, 4)]) == ((0, 1, 3, 4), (2,))
    assert groups(range(2), []) == ((0,), (1,))


def test_the_file_names_no_part_and_may_hold_any_name():
    name = 'Wi"z\\ard\n\x1b[31m 9000 \x7f ü'
    text = machine_text(machine_of(2, names=(name, "Other"), failures={"collectives": "no\nNCCL"}), PARTS)
    table = tomllib.loads(text)
    assert not [key for key in NAMES & table.keys() if isinstance(table[key], str)]
    assert not re.findall(r"^(?:gap|factor|costs|efficiency|pcie) = \"", text, re.MULTILINE)
    assert "not measured: collectives: no NCCL" in table["notes"]
    assert any("the devices differ; all are described as the first one" in note for note in table["notes"])
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"operators": ()}, "device.peak.float32: no matrix product was measured: out of memory"),
        ({"operators": machine_of().operators[:1]}, "device.bandwidth: no copy in the device's memory was measured"),
        ({"host_copies": ()}, "links.pcie: no copy between host and device was measured"),
        ({"memory_bytes": (0,)}, "device.memory: torch reports 0 bytes for Wizard 9000"),
    ],
)
def test_what_nothing_can_stand_for_is_one_clear_line(change, line):
    with pytest.raises(NothingMeasuredError) as error:
        machine_text(machine_of(failures={"matmul of large": "out of memory"}, **change), PARTS)
    assert str(error.value) == line
    assert error.value.exit_code == 3


def test_two_devices_without_any_copy_between_them_need_nccl(described):
    assert described(machine_of(2, pairs=())).ring is not None
    with pytest.raises(NothingMeasuredError, match="neither NCCL nor a copy between devices"):
        machine_text(machine_of(2, pairs=(), collectives=False), PARTS)


ODD = st.sampled_from([0.0, -1.0, 1e-300, 1e-9, 1e-3, 1.0, 1e6, 1e300])
ODDS = st.lists(ODD, max_size=3).map(tuple)


def scrambled(value, odds):
    """Replace each series in a message by odd values."""
    if isinstance(value, list) and value and all(isinstance(each, float) for each in value):
        return list(odds())
    if isinstance(value, list):
        return [scrambled(each, odds) for each in value]
    if isinstance(value, dict):
        return {key: scrambled(each, odds) for key, each in value.items()}
    return value


def text_or_line(found):
    """Return the file, or the line that says why there is none."""
    try:
        return machine_text(found, PARTS), None
    except NothingMeasuredError as error:
        return None, str(error)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4), st.booleans(), st.booleans())
def test_odd_measurements_are_a_file_that_loads_or_one_line(tmp_path_factory, data, devices, peers, is_sound):
    """With `is_sound` the numbers that nothing can stand for are there, so there must be a file."""
    plain = machine_of(devices, peers=peers, sharing=[(0, 1)]).model_dump(mode="json")
    odd = scrambled(plain, lambda: data.draw(ODDS))
    sound = {name: plain[name] for name in ("operators", "host_copies", "collectives")} if is_sound else {}
    found = Measurements.model_validate(odd | sound)
    text, line = text_or_line(found)
    if line is not None:
        assert line.isprintable()
        assert not is_sound
        return
    file = tmp_path_factory.mktemp("odd") / "this.toml"
    file.write_text(text)
    assert load_machine(str(file)).devices == devices
