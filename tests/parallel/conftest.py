import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=["sequence", "threads"])
def dispatch(request):
    return request.param
