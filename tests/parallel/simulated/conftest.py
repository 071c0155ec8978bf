import pytest
import torch

from dpbench.simulator import simulate

DEVICES = 4
simulate(DEVICES)


@pytest.fixture(autouse=True)
def _apart():
    """The same numbers in each test, and none in a race with another's leftovers."""
    torch.manual_seed(0)
    yield
    for device in range(DEVICES):
        torch.sim.synchronize(device)
