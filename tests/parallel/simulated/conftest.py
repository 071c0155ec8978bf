import pytest
import torch

from dpbench.simulator import simulate

DEVICES = 4


@pytest.fixture(autouse=True, scope="session")
def _simulated():
    """Not at import: pytest imports this file in the process of the other tests too."""
    simulate(DEVICES)


@pytest.fixture(autouse=True)
def _apart():
    """The same numbers in each test, and none in a race with another's leftovers."""
    torch.manual_seed(0)
    yield
    for device in range(DEVICES):
        torch.sim.synchronize(device)
