"""Sequential dispatch of replicas that wait for each other do not deadlock."""

import gc
import os
import sys
import threading
import time
import warnings
import weakref

import pytest
import torch

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel import sequential as watchdog
from dpbench.parallel.sequential import SequentialRun, StallWatchdog, check_all
from dpbench.parallel.thread_state import ThreadState
from dpbench.parallel.threads import ThreadPools
from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import exit_code_of, no_warnings
from tests.parallel.test_threads import has_ended

LANES = 3


def wrap(forward, dispatch="auto"):
    return DataParallel(Call(forward), ["cpu"] * LANES, policy=Policy(dispatch=dispatch))


def watchdogs():
    return {thread for thread in threading.enumerate() if thread.name == "dp-lane-watchdog"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a thread waits for")
def test_replicas_that_meet_at_a_barrier_get_threads_and_keep_them(monkeypatch):
    monkeypatch.setattr(watchdog, "SLOW_CHECKS", 10**9)
    barrier = threading.Barrier(LANES)
    threads = []

    def forward(self, x):
        barrier.wait(timeout=60)
        threads.append(threading.current_thread())
        return x * 2 if torch.is_grad_enabled() else x

    wrapper, x = wrap(forward), torch.arange(6.0)

    def loop():
        for _ in range(12):
            assert wrapper(x).tolist() == (x * 2).tolist()
            with torch.no_grad():
                assert wrapper(x).tolist() == x.tolist()

    with pytest.warns(UserWarning, match=r'wait for each other need Policy\(dispatch="threads"\)') as caught:
        loop()
    assert len(caught) == 1
    assert len(set(threads[-LANES:])) == LANES


@pytest.mark.usefixtures("_quick_watchdog")
def test_slow_replicas_are_helped_later_in_the_first_forward_than_in_others(monkeypatch):
    monkeypatch.setattr(watchdog, "FIRST_FACTOR", 1000)
    is_slow = [True]
    wrapper = wrap(lambda self, x: (time.sleep(0.3 * is_slow[0]), x)[1])
    with no_warnings():
        wrapper(torch.zeros(LANES, 1))  # a first forward may compile
    wrapper(torch.zeros(LANES, 1))  # on threads, as a trial
    with pytest.warns(UserWarning, match="others had not begun"):
        wrapper(torch.zeros(LANES, 1))


@pytest.mark.usefixtures("_quick_watchdog")
def test_a_rescue_of_slow_replicas_changes_no_number():
    base, x = mlp(), torch.randn(6, 5)
    wrapper = wrap(lambda self, x: (time.sleep(0.3), self.inner(x))[1])
    wrapper.module.inner = base
    with pytest.warns(UserWarning, match="others had not begun"):
        torch.testing.assert_close(wrapper(x), base(x))


@pytest.mark.usefixtures("_quick_watchdog")
@pytest.mark.parametrize("drawing", [[0, 1, 2], [0]], ids=["while others draw", "before there were threads"])
def test_draws_of_rescued_replicas_are_warned_of_once(drawing):
    def forward(self, x):
        drawn = torch.rand(1) if x.item() in drawing else x
        time.sleep(0.3)
        return drawn

    wrapper = wrap(forward)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapper(torch.arange(3.0))
        wrapper(torch.arange(3.0))
    drew = ["random numbers were drawn" in str(warning.message) for warning in caught]
    assert drew == [False, True]  # in the second forward, which has threads, if no replica drew while others ran


@pytest.mark.usefixtures("_quick_watchdog")
def test_the_error_of_a_rescued_replica_is_raised():
    meeting = threading.Event()

    def forward(self, x):
        if x.item() == 2:
            meeting.set()
            raise KeyError(x.item())
        assert meeting.wait(timeout=60)
        return x

    with pytest.warns(UserWarning, match="others had not begun"), pytest.raises(KeyError, match="in replica 2"):
        wrap(forward)(torch.arange(3.0))


def sequential_run(calls):
    return SequentialRun(calls, [], ThreadState.of_this_thread(), ThreadPools())


def test_only_runs_without_progress_are_rescued(monkeypatch):
    monkeypatch.setattr(watchdog, "SLOW_CHECKS", 1)
    begun = []
    standing, moving, ended = (sequential_run([lambda: begun.append(0)] * 2) for _ in range(3))
    ended.run()
    begun.clear()
    check_all([standing, moving, ended])
    moving._pending.popleft()()
    check_all([standing, moving, ended, later := sequential_run([list])])
    assert [run.rescue is not None for run in (standing, moving, ended, later)] == [True, False, False, False]
    assert standing.run() == [None, None]
    assert len(begun) == 3


def test_an_interrupt_starts_no_further_call_and_waits_for_running_calls():
    ends = []

    def interrupted():
        tail.rescue_others()
        raise KeyboardInterrupt

    tail = sequential_run([interrupted, lambda: (time.sleep(0.2), ends.append("helped"))])
    with pytest.raises(KeyboardInterrupt):
        tail.run()
    assert ends == ["helped"]

    def at_once():
        raise KeyboardInterrupt

    alone = sequential_run([at_once, lambda: ends.append("begun")])
    with pytest.raises(KeyboardInterrupt):
        alone.run()
    alone.rescue_others()
    assert alone.rescue is None


@pytest.mark.usefixtures("_quick_watchdog")
def test_the_watchdog_ends_with_its_wrapper_and_holds_no_replica():
    gc.collect()
    before, replicas = watchdogs(), []
    wrapper = wrap(lambda self, x: (replicas.append(weakref.ref(self)), x)[1])
    for _ in range(3):
        wrapper(torch.arange(6.0))
    (mine,) = watchdogs() - before
    assert not wrapper._dispatcher._watchdog._running
    assert len(wrapper._replicas.sets) == 1
    wrapper._replicas.sets.drop()
    assert [ref() for ref in replicas] == [None] * len(replicas)
    del wrapper
    assert has_ended(mine)


def test_there_is_no_watchdog_if_the_policy_fixes_the_dispatch():
    gc.collect()
    before = watchdogs()
    for dispatch in ("sequence", "threads"):
        with no_warnings():
            DataParallel(mlp(), ["cpu"] * LANES, policy=Policy(dispatch=dispatch))(torch.randn(6, 5))
    assert watchdogs() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_starts_its_own_watchdog():
    watchdog = StallWatchdog()
    assert watchdog.run(sequential_run([lambda: 1])) == [1]

    def child():
        assert not watchdogs()
        assert [watchdog.run(sequential_run([lambda: 2])) for _ in range(2)] == [[2], [2]]
        os._exit(len(watchdogs()))

    assert exit_code_of(child) == 1
