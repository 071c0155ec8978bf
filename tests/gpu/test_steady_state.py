"""A training loop does not collect memory or threads."""

import gc
import threading

import pytest
import torch

from tests.gpu.device import DEVICE, skip_without_gpu, synchronize, wrap
from tests.parallel.models import normed

pytestmark = pytest.mark.gpu
skip_without_gpu()


def memory_in_use():
    """Return the bytes allocated and the bytes reserved, once all streams are idle."""
    gc.collect()
    synchronize()
    torch.empty(1, device=DEVICE)  # an allocation makes the allocator take back blocks that streams have finished with
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
        thread.join(timeout=60)  # the thread ends soon; deleting the wrapper does not wait for it
        assert not thread.is_alive()


def test_deleting_a_wrapper_frees_its_memory():
    def make_and_delete():
        wrapper = wrap(normed().to(DEVICE), 4)
        wrapper(torch.randn(16, 5, device=DEVICE)).sum().backward()

    make_and_delete()  # the libraries' workspaces stay
    before, _ = memory_in_use()
    make_and_delete()
    assert memory_in_use()[0] == before
