"""Pytest plugin of the tests on the stand-in: each test ends with idle devices and without a race."""

from collections.abc import Iterator

import pytest
import torch

from tests.cuda_stand_in import control


def pytest_configure() -> None:
    torch.set_num_threads(1)


def pytest_report_header() -> str:
    return f"CUDA stand-in: {torch.cuda.device_count()} devices, torch {torch.__version__}"


@pytest.fixture(autouse=True)
def _seeded_and_without_races(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    control.take_races()
    yield
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    races = control.take_races()
    if request.node.get_closest_marker("races") is None:
        assert races == []
