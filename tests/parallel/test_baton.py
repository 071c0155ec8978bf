"""The baton of interleaved lanes: interrupts and late starts leave no lane waiting."""

import pytest

from dpbench.parallel.interleaved import Baton, InterleavedRun
from dpbench.parallel.thread_state import ThreadState
from dpbench.parallel.threads import ThreadPools


class Interrupting:
    """A gate at which a wait is interrupted."""

    def acquire(self):
        raise KeyboardInterrupt

    def release(self):
        pass


def test_a_wait_that_is_interrupted_drops_the_baton():
    """The lane may catch the interrupt and go on, beside the lane that holds the baton."""
    baton = Baton(2)
    baton.take(0)
    baton._gates[0] = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        baton.pass_on(0)
    assert baton.is_dropped
    baton.pass_on(0)
    baton.take(1)


def test_a_lane_that_leaves_without_the_baton_drops_it():
    baton = Baton(3)
    baton.leave(1)
    assert baton.is_dropped
    for lane in range(3):
        baton.take(lane)


def test_lanes_that_leave_are_passed_over():
    baton, holders = Baton(4), []
    while not baton.is_alone:
        holders.append(baton.holder)
        if len(holders) % 2:
            baton._give(baton._next[baton.holder])
        else:
            baton.leave(baton.holder)
    assert holders == [0, 1, 2, 3, 0, 2]
    assert baton.holder == 0


def test_dropping_twice_or_after_the_end_is_harmless():
    baton = Baton(2)
    baton.take(0)
    baton.leave(0)
    baton.take(1)
    baton.leave(1)
    baton.drop()
    baton.drop()
    assert baton.is_dropped


def test_an_interrupt_before_the_first_lane_leaves_no_thread_waiting(monkeypatch):
    run, ended = ThreadPools.run, []

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPools, "run", lambda self, first, *others, **how: run(self, interrupt, *others, **how))
    calls = [lambda lane=lane: ended.append(lane) for lane in range(3)]
    with pytest.raises(KeyboardInterrupt):
        InterleavedRun(calls, [], ThreadState.of_this_thread(), ThreadPools()).run()
    assert sorted(ended) == [1, 2]
