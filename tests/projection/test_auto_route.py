"""The wrapper's choice of a route, from the links of a machine's file."""

import pytest

from benchmarks.projection.auto_route import links_on, route_on
from dpbench.parallel.policy import Route
from dpbench.parallel.routes.plan import reason
from dpbench.projection.described.machine_file import load_machine


@pytest.mark.parametrize(
    ("machine", "route"),
    [
        ("2xV100-pcie", Route.STAR),
        ("4x4090-pcie", Route.HOST),
        ("8x2080Ti-pcie", Route.HOST),
        ("4xL4-pcie", Route.CHAIN),
        ("8xV100-pcie", Route.CHAIN),
        ("8xA100-nvswitch", Route.CHAIN),
    ],
)
def test_a_machine_without_peers_sends_through_the_host_and_others_take_a_chain(machine, route):
    assert route_on(load_machine(machine)) is route


def test_copies_that_share_a_link_slow_each_other_down():
    """A star sends seven copies over the first device's link, a chain one."""
    seconds = dict(links_on(load_machine("8xV100-pcie")).seconds)
    assert seconds[Route.STAR] > 4 * seconds[Route.CHAIN]
    assert "measured" in reason(links_on(load_machine("8xV100-pcie")))
