import pytest
import torch

from tests.gpu.device import synchronize
from tests.parallel.remote import take_remote_paths


@pytest.fixture(autouse=True)
def _seeded_and_idle_afterwards():
    """Seed each test, and finish its work afterwards, also that of a test that failed."""
    torch.manual_seed(0)
    yield
    synchronize()


@pytest.fixture(params=["sequence", "threads", "interleaved"])
def dispatch(request):
    return request.param


@pytest.fixture
def _remote(monkeypatch):
    """Lanes that take the paths of several GPUs, on side streams."""
    take_remote_paths(monkeypatch)


LANES = {"lanes1": (1, False), "lanes2": (2, False), "lanes2 remote": (2, True), "lanes4 remote": (4, True)}


@pytest.fixture(params=LANES.values(), ids=LANES)
def lanes(request, monkeypatch):
    count, is_remote = request.param
    if is_remote:
        take_remote_paths(monkeypatch)
    return count
