"""Loaded into the child process in which the cases run: it, and no other, has the simulated devices."""

from collections.abc import Iterator

import pytest
import torch

from dpbench.simulator import simulate


def pytest_configure() -> None:
    simulate(devices=4)


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """The work of one case is over before the next begins: they share memory, and a race between two is nobody's."""
    yield
    sim = torch.get_device_module("sim")
    for device in range(sim.device_count()):
        sim.synchronize(device)
