"""The first devices of a machine."""

import pytest

from benchmarks.instruments.projection.subset import first_devices
from dpbench.errors import WrongInputError
from dpbench.projection.machine_file import load_machine


def test_all_devices_are_the_machine_itself():
    machine = load_machine("8xV100-sxm")
    assert first_devices(machine, 8) is machine


@pytest.mark.parametrize(
    ("name", "count"), [("8xV100-sxm", 4), ("8xV100-sxm", 1), ("8xA100-pcie", 3), ("4xT4-pcie", 2)]
)
def test_exactly_the_routes_between_kept_places_stay(name, count):
    machine = load_machine(name)
    kept = first_devices(machine, count)
    places = (None, *range(count))
    assert kept.devices == count
    assert kept.routes == {(a, b): machine.routes[a, b] for a in places for b in places if a != b}
    taken = {link for route in kept.routes.values() for link in route}
    assert set(kept.links) == taken
    assert all(machine.links[name] == link for name, link in kept.links.items())


def test_a_ring_has_the_share_of_the_nvlinks_that_stay():
    machine = load_machine("8xV100-sxm")  # 6 NVLinks each; 0 and 1 have one between them, and four have 4 or 5
    assert machine.ring is not None
    whole = machine.ring.bus_bandwidth
    for count, share in ((2, 1 / 6), (4, 4 / 6)):
        ring = first_devices(machine, count).ring
        assert ring is not None
        assert ring.bus_bandwidth.mid == pytest.approx(whole.mid * share)
        assert ring.bus_bandwidth.low == pytest.approx(whole.low * share)
        assert ring.hop == machine.ring.hop


def test_a_ring_without_nvlink_keeps_its_bandwidth():
    machine = load_machine("8xA100-pcie")
    assert first_devices(machine, 4).ring == machine.ring


def test_one_device_has_no_ring_and_no_constants_of_nccl():
    kept = first_devices(load_machine("8xV100-sxm"), 1)
    assert kept.ring is None
    assert not any(name.startswith("nvlink") for name in kept.links)


@pytest.mark.parametrize(
    ("name", "count", "line"),
    [
        ("8xV100-sxm", 0, "devices: 0 is not allowed; allowed: 1 to 8 on 8xV100-sxm"),
        ("8xV100-sxm", 9, "devices: 9 is not allowed; allowed: 1 to 8 on 8xV100-sxm"),
        (
            "2x8xV100-4x100gb",
            4,
            "devices: 4 of several machines is not allowed; allowed: 16, or a machine's file for 8 devices",
        ),
    ],
)
def test_an_impossible_count_is_one_line(name, count, line):
    with pytest.raises(WrongInputError) as raised:
        first_devices(load_machine(name), count)
    assert str(raised.value) == line
