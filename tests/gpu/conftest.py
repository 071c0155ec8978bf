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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Stop this process after a test that broke CUDA in it: all later tests would fail."""
    report = yield
    if report.failed and (error := lasting_error()):
        item.session.shouldstop = f"CUDA does not work any more in this process: {error}"
    return report


def lasting_error():
    """Return the error that CUDA raises at each call, such as after an illegal memory access; None if it works."""
    error = None
    for _ in range(2):  # an error that does not last is raised once
        try:
            synchronize()
        except RuntimeError as raised:
            error = str(raised).partition("\n")[0]
        else:
            return None
    return error


@pytest.fixture(params=["sequence", "threads"])
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
