"""torch's stream sanitizer sees the operators of lanes on threads.

The lanes share a device and take the paths of several. The sanitizer notes each operator on the current stream of the
current device alone, so it would report copies between devices that are in order.
"""

import threading

import pytest
import torch
import torch.cuda._sanitizer as sanitizer
from torch import nn

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.tables import Arrival
from tests.cuda_stand_in import control
from tests.parallel.remote import take_remote_paths

LANES, WIDTH, STEPS = 4, 16, 10
sanitizer.enable_cuda_sanitizer()  # for the life of the process
control.raise_races(False)  # the stand-in would raise first

pytestmark = pytest.mark.races


@pytest.fixture(autouse=True)
def _remote(monkeypatch):
    take_remote_paths(monkeypatch)


class Noting(nn.Linear):
    """A linear layer that notes the threads of its forwards."""

    def __init__(self, threads):
        super().__init__(WIDTH, WIDTH)
        self.threads = threads

    def forward(self, x):
        self.threads.add(threading.get_ident())
        return super().forward(x)


def made(dispatch):
    threads = set()
    base = nn.Sequential(*[layer for _ in range(4) for layer in (Noting(threads), nn.Tanh())]).to("cuda:0")
    policy = Policy(dispatch=dispatch, bucket_bytes=1100, first_bucket_bytes=1100)
    return base, DataParallel(base, [0] * LANES, policy=policy), threads


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_steps_with_all_waits_have_no_race_and_run_as_asked(dispatch):
    base, wrapper, threads = made(dispatch)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        wrapper(torch.randn(16, WIDTH, device="cuda:0")).square().sum().backward()
        optimizer.step()
    assert len(threads) == (1 if dispatch == "sequence" else LANES)
    assert control.take_races() == []


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_a_missing_wait_in_a_lanes_forward_is_reported(dispatch, monkeypatch):
    _, wrapper, _ = made(dispatch)
    monkeypatch.setattr(Arrival, "wait", lambda self: None)
    with torch.no_grad(), pytest.raises(sanitizer.CUDASanitizerErrors):
        wrapper(torch.randn(16, WIDTH, device="cuda:0"))
