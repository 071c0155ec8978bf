"""Pytest plugin of ``sim_*.py`` files: it starts the simulated devices."""

from collections.abc import Iterator

import pytest
import torch

from dpbench.simulator import simulate

DEVICES = 4


def pytest_configure() -> None:
    # Simulated operators are small. With more threads, each thread of a parallel forward starts an OpenMP pool of its
    # own, whose workers spin: the files then take three times as long on two cores.
    torch.set_num_threads(1)
    simulate(DEVICES)


@pytest.fixture(autouse=True)
def _seeded_and_idle_afterwards() -> Iterator[None]:
    """Seed each test, and finish its work afterwards.

    The next test reuses the memory, so the two would race.
    """
    torch.manual_seed(0)
    yield
    sim = torch.get_device_module("sim")
    for device in range(DEVICES):
        sim.synchronize(device)
