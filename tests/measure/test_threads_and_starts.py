"""What tier 0 counts of threads, of starts, and of a default dispatch whose choice is given."""

import threading
from queue import Empty, SimpleQueue

import pytest
import torch
from torch import nn

from dpbench.measure.counted.host_work import ThreadWork
from dpbench.measure.pinned import pinned
from dpbench.parallel import DataParallel, thread_state
from dpbench.records.count_record import Phase

NOTHING = dict.fromkeys(("threads_started", "threading_calls", "thread_python_calls", "waits"), 0)


def leaf():
    pass


class Server:
    """A thread that exists before the step. It calls what it gets, and `leaf` each time that it has waited in vain."""

    def __init__(self, timeout_s=None):
        self.calls, self.done, self.timeout_s, self.checks = SimpleQueue(), SimpleQueue(), timeout_s, 0
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                call = self.calls.get(timeout=self.timeout_s)
            except Empty:
                leaf()
                self.checks += 1
                continue
            if call is None:
                return
            call()
            self.done.put(None)

    def ask(self):
        self.calls.put(leaf)
        self.done.get()


@pytest.fixture
def work():
    thread_work = ThreadWork()
    yield thread_work
    thread_work.stop()
    threading.setprofile(None)


def counted(work, step):
    work.enter(Phase.FORWARD)
    step()
    work.stop()
    return work.of(Phase.FORWARD)


def test_a_step_without_threads_has_none(work):
    assert counted(work, leaf) == NOTHING


def test_a_timer_is_a_thread_and_two_calls(work):
    timer = threading.Timer(60.0, leaf)

    def step():
        threading.Timer(60.0, leaf)
        timer.start()

    assert counted(work, step) == NOTHING | {"threads_started": 1, "threading_calls": 2}
    timer.cancel()


def test_a_thread_that_exists_counts_with_its_waits(work):
    server = Server()
    assert counted(work, server.ask) == NOTHING | {"thread_python_calls": 1, "waits": 2}
    server.calls.put(None)


def test_what_follows_a_wait_that_time_ended_is_no_part_of_a_step(work):
    server = Server(timeout_s=0.001)

    def step():
        until = server.checks + 5
        while server.checks < until:
            pass

    assert counted(work, step) == NOTHING
    server.calls.put(None)


@pytest.mark.parametrize("way", ["sequence", "threads"])
@pytest.mark.filterwarnings("ignore:replicas ran on several threads")
def test_the_default_dispatch_chooses_the_given_way(way, monkeypatch):
    monkeypatch.setattr(thread_state, "FORWARD_AD", "nobody's")  # as in a process that has not used forward-mode AD
    seen = set()

    class Seeing(nn.Module):
        def forward(self, x):
            seen.add(threading.get_ident())
            return x

    wrapper, x = DataParallel(Seeing(), ["cpu"] * 2), torch.zeros(2, 1)
    with pinned(way) as chosen:
        while wrapper.trials_left:
            wrapper(x)
    assert chosen == [way]
    seen.clear()
    wrapper(x)
    assert (len(seen) > 1) is (way == "threads")
