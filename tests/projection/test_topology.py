"""Routes and links of small layouts, by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.projection.machine import Link, Quantity
from dpbench.projection.machine_file import load_machine
from dpbench.projection.topology import Layout, links_of, routes_of

RATE = Quantity(unit="GB/s", low=1, mid=2, high=3, source="read")
SINGLE = Link(bandwidth=RATE, latency=Quantity(unit="us", low=4, mid=5, high=6, source="read"))
BY_ROLE = dict.fromkeys(("pcie", "uplink", "socket", "nvlink", "staged", "network"), SINGLE)
# Devices 0 and 1 share switch 0; 2 is alone on switch 1; both on socket 0. 3 is alone on switch 2, socket 1.
PCIE = Layout(devices=4, switches=[[0, 1], [2], [3]], sockets=[[0, 1], [2]], peer=True)


def replace(layout: Layout, **changes: object) -> Layout:
    return layout.model_copy(update=changes)


@pytest.mark.parametrize(
    ("layout", "source", "destination", "route"),
    [
        (PCIE, None, 0, "uplink.0.down pcie.0.down"),
        (PCIE, 0, None, "pcie.0.up uplink.0.up"),
        (PCIE, None, 2, "pcie.2.down"),
        (PCIE, 0, 1, "pcie.0.up pcie.1.down"),
        (PCIE, 0, 2, "pcie.0.up uplink.0.up pcie.2.down"),
        (PCIE, 2, 1, "pcie.2.up uplink.0.down pcie.1.down"),
        (PCIE, 0, 3, "pcie.0.up uplink.0.up socket.0-1 pcie.3.down"),
        (PCIE, 3, 2, "pcie.3.up socket.1-0 pcie.2.down"),
        (replace(PCIE, peer=False), 0, 1, "pcie.0.up uplink.0.up staged.0 uplink.0.down pcie.1.down"),
        (replace(PCIE, peer=False), 3, 2, "pcie.3.up staged.3 pcie.2.down"),
        (replace(PCIE, nvlinks=[(0, 3, 2)]), 3, 0, "nvlink.3-0"),
        (replace(PCIE, nvlinks=[(0, 3, 2)]), 0, 2, "pcie.0.up uplink.0.up pcie.2.down"),
        (replace(PCIE, nvlinks=[(0, 3, 2)]), None, 3, "pcie.3.down"),
        (replace(PCIE, nvswitch_links=12), 0, 3, "nvswitch.0.out nvswitch.3.in"),
        (replace(PCIE, nvswitch_links=12), 0, None, "pcie.0.up uplink.0.up"),
        (replace(PCIE, machines=2), 4, 7, "pcie.4.up uplink.3.up socket.2-3 pcie.7.down"),
        (replace(PCIE, machines=2), None, 5, "uplink.3.down pcie.5.down"),
        (replace(PCIE, machines=2), 1, 6, "pcie.1.up uplink.0.up network.0.out network.1.in pcie.6.down"),
        (
            replace(PCIE, machines=2, nvswitch_links=12),
            7,
            0,
            "pcie.7.up network.1.out network.0.in uplink.0.down pcie.0.down",
        ),
        (replace(PCIE, machines=2, nvswitch_links=12), 7, 6, "nvswitch.7.out nvswitch.6.in"),
        (replace(PCIE, machines=2, nvlinks=[(0, 3, 2)]), 4, 7, "nvlink.4-7"),
        (replace(PCIE, machines=2, peer=False), 7, 6, "pcie.7.up staged.7 pcie.6.down"),
    ],
)
def test_the_route_of_a_copy(layout: Layout, source: int | None, destination: int | None, route: str) -> None:
    assert routes_of(layout)[source, destination] == tuple(route.split())


def test_several_links_have_their_bandwidth_together_and_one_latency() -> None:
    layout = replace(PCIE, nvlinks=[(3, 0, 2), (1, 2, 1)], machines=2)
    links = links_of(layout, routes_of(layout), BY_ROLE)
    counts = {name: link.bandwidth.mid / RATE.mid for name, link in links.items()}
    assert {name: count for name, count in counts.items() if count > 1} == dict.fromkeys(
        ("nvlink.0-3", "nvlink.3-0", "nvlink.4-7", "nvlink.7-4"), 2
    )
    assert counts["nvlink.6-5"] == counts["uplink.3.up"] == counts["network.1.in"] == 1
    assert "uplink.1.up" not in counts
    double = links["nvlink.0-3"]
    assert (double.bandwidth.low, double.bandwidth.high, double.latency) == (2e9, 6e9, SINGLE.latency)
    switched = replace(PCIE, nvswitch_links=12)
    assert links_of(switched, routes_of(switched), BY_ROLE)["nvswitch.0.out"].bandwidth.high == 36e9


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    devices = draw(st.integers(1, 6))
    switches = draw(groups(devices))
    pairs = list(itertools.combinations(range(devices), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Layout(
        devices=devices,
        machines=draw(st.integers(1, 3)),
        switches=switches,
        sockets=draw(groups(len(switches))),
        peer=draw(st.booleans()),
        nvlinks=[(*pair, draw(st.integers(1, 4))) for pair in chosen],
        **({"nvswitch_links": 12} if devices > 1 and not chosen and draw(st.booleans()) else {}),
    )


@st.composite
def groups(draw: st.DrawFn, count: int) -> list[list[int]]:
    labels = [draw(st.integers(0, 2)) for _ in range(count)]
    return [[i for i in range(count) if labels[i] == label] for label in sorted(set(labels))]


@given(layouts())
def test_any_layout_routes_every_pair_over_existing_links(layout: Layout) -> None:
    routes = routes_of(layout)
    names = links_of(layout, routes, BY_ROLE)
    places = (None, *range(layout.devices * layout.machines))
    assert set(routes) == {(a, b) for a in places for b in places if a != b}
    for (source, destination), route in routes.items():
        assert len(set(route)) == len(route) > 0
        assert names.keys() >= set(route)
        if layout.peer:  # copies through host memory share uplinks
            assert not set(routes[destination, source]) & set(route)


def test_the_mesh_of_a_dgx1() -> None:
    machine = load_machine("8xV100-sxm")
    links = {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
    for (a, b), count in links.items():
        (name,) = machine.routes[a, b]
        assert machine.links[name].bandwidth.mid == count * machine.links["nvlink.2-6"].bandwidth.mid
    ends = [a for a, b in machine.routes if a is not None and machine.routes[a, b][0].startswith("nvlink")]
    assert all(ends.count(device) == 4 for device in range(8))
    assert machine.routes[0, 5][0] == "pcie.0.up"
