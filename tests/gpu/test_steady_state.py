"""A training loop keeps what it has: memory, threads."""

import gc
import threading

import pytest
import torch

from tests.gpu.device import DEVICE, skip_without_gpu, synchronize, wrap
from tests.parallel.models import normed

pytestmark = pytest.mark.gpu
skip_without_gpu()


def memory_in_use():
    """Bytes that tensors have and bytes taken from the device, once nothing waits for a stream any more."""
    gc.collect()
    synchronize()
    torch.empty(1, device=DEVICE)  # with it the allocator takes back what streams have done with
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def test_memory_stays_flat_over_two_hundred_steps(lanes, dispatch):
    base = normed().to(DEVICE)
    wrapper = wrap(base, lanes, dispatch=dispatch, bucket_bytes=64, first_bucket_bytes=64)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            wrapper(torch.randn(16, 5).to(DEVICE)).square().sum().backward()
            optimizer.step()
            synchronize()
        optimizer.zero_grad()
        return memory_in_use()

    before = train(50)
    assert train(200) == before


def lane_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("dp-lane")}


def test_no_thread_outlives_its_wrapper():
    gc.collect()
    before = lane_threads()
    wrapper = wrap(normed().to(DEVICE), 4, dispatch="threads")
    wrapper(torch.randn(16, 5, device=DEVICE)).sum().backward()
    mine = lane_threads() - before
    assert len(mine) == 3
    del wrapper
    for thread in mine:
        thread.join(timeout=60)  # soon: the wrapper itself waits for nobody
        assert not thread.is_alive()


def test_the_memory_of_a_wrapper_goes_with_it():
    def come_and_go():
        wrapper = wrap(normed().to(DEVICE), 4)
        wrapper(torch.randn(16, 5, device=DEVICE)).sum().backward()

    come_and_go()  # the libraries' workspaces stay
    before, _ = memory_in_use()
    come_and_go()
    assert memory_in_use()[0] == before
