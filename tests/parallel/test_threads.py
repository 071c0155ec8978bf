"""A wrapper's threads live as long as the wrapper; a forked process has its own."""

import gc
import multiprocessing
import os
import threading

import pytest
import torch
from torch import nn

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import LANES, exit_code_of, wrap


def lane_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("dp-lane")]


def test_threads_live_as_long_as_their_wrapper():
    gc.collect()  # wrappers of other tests may be in cycles with their forwards
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
    """Whether the thread ends soon; the wrapper does not join it."""
    thread.join(timeout=60)
    return not thread.is_alive()


def test_the_end_of_a_wrapper_does_not_wait_for_its_threads():
    """The wrapper may be collected in a thread that its own threads wait for, as at a start."""
    never, gone = threading.Event(), threading.Event()
    wrapper = wrap(mlp(), dispatch="threads")
    wrapper(torch.randn(8, 5))
    (pool,) = wrapper._dispatcher._pools._idle
    pool[0].submit(never.wait, id)
    held = [wrapper]
    del wrapper, pool
    dying = threading.Thread(target=lambda: (held.clear(), gc.collect(), gone.set()), daemon=True)
    dying.start()
    assert gone.wait(timeout=60)
    never.set()


def test_a_wrapper_dying_on_its_own_thread_ends_its_threads():
    holder, mine = [], set()

    def forward(self, x):
        holder.clear()  # the last reference except the caller's
        mine.add(threading.current_thread())
        return x

    gc.collect()
    holder.append(wrap(Call(forward), dispatch="threads"))
    holder[0](torch.ones(4))
    gc.collect()
    assert len(mine) == LANES
    assert all(has_ended(thread) for thread in mine - {threading.current_thread()})


def _fork_with_a_wrapper(dispatch):
    base = Call(lambda self, x: x * self.weight, weight=nn.Parameter(torch.full((1,), 3.0)))
    wrapper = wrap(base, dispatch=dispatch)
    wrapper(torch.ones(8))

    def child():
        outputs, pools = [], []
        for _ in range(2):
            outputs += wrapper(torch.ones(8)).tolist()
            pools += wrapper._dispatcher._pools._idle
        # The parent's pools are not used.
        os._exit(0 if outputs == [3.0] * 16 and len(pools) == 2 and pools[0] is pools[1] else 1)

    os._exit(3 if (code := exit_code_of(child)) is None else abs(code))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("dispatch", ["threads"])
def test_a_forked_process_has_its_own_threads(dispatch):
    # A new process forks: torch may crash in a fork of this one, which has the threads of all tests before.
    process = multiprocessing.get_context("spawn").Process(target=_fork_with_a_wrapper, args=(dispatch,))
    process.start()
    process.join(120)
    assert process.exitcode == 0
