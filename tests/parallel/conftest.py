import copy

import pytest
import torch

from dpbench.parallel import sequential
from dpbench.parallel import thread_state as thread_hazards
from dpbench.parallel.buckets import FlatCopy
from tests.parallel.models import mlp


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _without_forward_ad(monkeypatch):
    """As in a process that has not used forward-mode AD."""
    monkeypatch.setattr(thread_hazards, "FORWARD_AD", "nobody's")


@pytest.fixture(params=["sequence", "threads"])
def dispatch(request):
    return request.param


@pytest.fixture
def pair():
    """A base in double precision, and a copy of it to be trained without a wrapper."""
    base = mlp().double()
    return base, copy.deepcopy(base)


@pytest.fixture
def _quick_watchdog(monkeypatch):
    """Slow replicas are rescued soon; those that wait for a lock, as always."""
    monkeypatch.setattr(sequential, "CHECK_EVERY_S", 0.05)
    monkeypatch.setattr(sequential, "SLOW_CHECKS", 2)
    monkeypatch.setattr(sequential, "FIRST_FACTOR", 1)


@pytest.fixture
def sent(monkeypatch):
    """A function that returns how many buckets were copied to lanes since its last call."""
    fills = []
    fill = FlatCopy.fill
    monkeypatch.setattr(
        FlatCopy, "fill", lambda self, flat, *more: fills.append(flat.numel()) or fill(self, flat, *more)
    )

    def count():
        number = len(fills)
        fills.clear()
        return number

    return count
