import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=["sequence", "threads"])
def dispatch(request):
    return request.param


@pytest.fixture(params=[1, 2, 4], ids="lanes{}".format)
def lanes(request):
    return request.param
