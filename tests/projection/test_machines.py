"""The machines that come with dpbench."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dpbench.projection.machine import HostCost, Machine, Quantity, Table
from dpbench.projection.machine_file import load_machine, machine_names
from dpbench.projection.step_sum import FILE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dpbench" / "machines"
PARTS = tomllib.loads((FOLDER / "parts.toml").read_text())
OF_LABELS = {"P100-PCIE", "A100-PCIE-80"}
"""Devices of no machine, on which efficiencies were measured."""
FILES = {name: tomllib.loads((FOLDER / f"{name}.toml").read_text()) for name in machine_names()}
cached = cache(load_machine)
EXPECTED = """
    8xV100-sxm 4xV100-sxm 8xV100-pcie 2xV100-pcie 4xT4-pcie 2xTITAN-RTX-nvlink 2xTITAN-RTX-pcie 8x2080Ti-pcie
    4x3090-pcie 8x3090-pcie 4x4090-pcie 4xA100-nvswitch 8xA100-nvswitch 8xA100-pcie 4xA100-sxm-40 8xH100-sxm 4xH100-sxm
    8xB200-sxm 4xL40S-pcie 8xMI300X 8xH200-sxm 4xL4-pcie 8xP100-sxm 2x8xA100-100gb 2x8xV100-100gb 2x8xV100-4x100gb
"""


@pytest.fixture(params=machine_names())
def machine(request: pytest.FixtureRequest) -> Machine:
    return cached(request.param)


def test_the_names_are_these() -> None:
    assert sorted(EXPECTED.split()) == list(machine_names())


def test_the_name_counts_the_devices(machine: Machine) -> None:
    count = 1
    for part in machine.name.split("x"):
        if not part.isdigit():
            break
        count *= int(part)
    assert machine.devices == count


def test_every_pair_has_a_route_over_links_that_exist(machine: Machine) -> None:
    places = (None, *range(machine.devices))
    pairs = {(a, b) for a in places for b in places if a != b}
    assert set(machine.routes) == pairs
    taken = {name for route in machine.routes.values() for name in route}
    assert taken == set(machine.links)
    assert all(route and len(set(route)) == len(route) for route in machine.routes.values())


def quantities(value: Any) -> Iterator[Quantity]:
    """Yield every quantity in a machine."""
    if isinstance(value, Quantity):
        yield value
    elif is_dataclass(value) or isinstance(value, Table):
        yield from quantities(vars(value))
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from quantities(part)


def test_every_quantity_has_bounds_and_a_source(machine: Machine) -> None:
    checked = list(quantities(machine))
    assert len(checked) > 40
    for quantity in checked:
        assert 0 < quantity.low <= quantity.mid <= quantity.high
        assert len(quantity.source) > 5


def test_numbers_are_of_the_right_size(machine: Machine) -> None:
    """A slip of a unit is a factor of 1,000."""
    assert 8 * 2**30 < machine.device.memory.mid < 256 * 2**30
    assert 5e12 < machine.device.peak["float32"].mid < 2e14
    assert 2e11 < machine.device.bandwidth.mid < 1e13
    assert 5e-7 < machine.device.gap.mid < 1e-5
    assert machine.ring is not None
    assert 3e9 < machine.ring.bus_bandwidth.low < machine.ring.bus_bandwidth.high < 1e12
    for link in machine.links.values():
        assert 4e9 < link.bandwidth.low < link.bandwidth.high < 1e12
        assert 1e-6 < link.latency.low < link.latency.high < 1e-4
    costs = dict(machine.host.costs)
    assert 1e-9 < costs.pop(HostCost.GRAPH_NODE).mid < 1e-8  # a straight line of kernels is one entry for the driver
    assert all(1e-7 < cost.mid < 1e-3 for cost in costs.values())


def test_a_ring_is_not_faster_than_the_links_of_a_device(machine: Machine) -> None:
    """NVLS adds in the switch, so H100's upper bound may exceed its links."""
    assert machine.ring is not None
    out = {name for (source, to), route in machine.routes.items() if source == 0 and to for name in route[:1]}
    assert machine.ring.bus_bandwidth.mid <= sum(machine.links[name].bandwidth.high for name in out)


def test_every_part_is_used_by_a_machine() -> None:
    named = {key: {FILES[name][key] for name in FILES} for key in ("device", "host", "ring", "nccl")}
    named["link"] = {link for name in FILES for link in FILES[name]["links"].values()}
    assert set(PARTS["device"]) == named["device"] | OF_LABELS
    for key in ("host", "ring", "nccl", "link"):
        assert set(PARTS[key]) == named[key], key
    assert {device["efficiency"] for device in PARTS["device"].values()} == set(PARTS["efficiency"])


def test_the_wheel_takes_the_machine_files_and_the_fitted_constants() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["dpbench"]
    taken = {path for pattern in patterns for path in (ROOT / "dpbench").glob(pattern)}
    assert {*FOLDER.glob("*.toml"), FILE} <= taken
