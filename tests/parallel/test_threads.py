"""A wrapper's threads live as long as the wrapper, wherever it dies, and a forked process has its own."""

import gc
import multiprocessing
import os
import threading

import pytest
import torch
from torch import nn

from tests.parallel.four_lanes import LANES, wrap
from tests.parallel.models import Call, mlp


def lane_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("dp-lane")]


def test_threads_live_as_long_as_their_wrapper():
    gc.collect()  # wrappers of other tests that their own forward refers to
    before = set(lane_threads())
    wrapper = wrap(mlp(), dispatch="threads")
    assert set(lane_threads()) == before
    for _ in range(3):
        wrapper(torch.randn(8, 5))
    mine = set(lane_threads()) - before
    assert len(mine) == LANES - 1
    del wrapper
    assert all(has_ended(thread) for thread in mine)


def has_ended(thread):
    """Soon, that is: nobody waits for it."""
    thread.join(timeout=60)
    return not thread.is_alive()


def test_a_wrapper_that_dies_waits_for_nobody():
    """It may do so in a thread for which its own wait, as one does that is just starting."""
    never, gone = threading.Event(), threading.Event()
    wrapper = wrap(mlp(), dispatch="threads")
    wrapper(torch.randn(8, 5))
    (pool,) = wrapper._dispatcher._pools._idle
    pool._threads[0].submit(never.wait)
    held = [wrapper]
    del wrapper, pool
    dying = threading.Thread(target=lambda: (held.clear(), gc.collect(), gone.set()), daemon=True)
    dying.start()
    assert gone.wait(timeout=60)
    never.set()


def test_a_wrapper_dying_on_its_own_thread_ends_its_threads():
    holder, mine = [], set()

    def forward(self, x):
        holder.clear()  # the last reference but the caller's own
        mine.add(threading.current_thread())
        return x

    gc.collect()
    holder.append(wrap(Call(forward), dispatch="threads"))
    holder[0](torch.ones(4))
    gc.collect()
    assert len(mine) == LANES
    assert all(has_ended(thread) for thread in mine - {threading.current_thread()})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_threads_of_its_own():
    base = Call(lambda self, x: x * self.weight, weight=nn.Parameter(torch.full((1,), 3.0)))
    wrapper = wrap(base, dispatch="threads")
    wrapper(torch.ones(8))

    def child():
        outputs, pools = [], []
        for _ in range(2):
            outputs += wrapper(torch.ones(8)).tolist()
            pools += wrapper._dispatcher._pools._idle
        os._exit(
            0 if outputs == [3.0] * 16 and len(pools) == 2 and pools[0] is pools[1] else 1
        )  # and the parent's are not its own

    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    process.start()
    process.join(20)
    is_hanging = process.exitcode is None
    process.kill()
    assert not is_hanging
    assert process.exitcode == 0
