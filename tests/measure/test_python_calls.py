"""The number of calls of Python functions, by phase."""

import contextlib
import threading

from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.session import device_of
from dpbench.records.count_record import Phase


def leaf():
    return len("a call of C does not count")


def twice():
    leaf()
    leaf()


def numbers():
    yield 1
    yield 2


def counted(work):
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        work()
    return calls.by_phase()[Phase.FORWARD]


def test_each_call_counts_and_each_resumption_of_a_generator():
    assert counted(leaf) == 1
    assert counted(twice) == 3
    assert counted(lambda: list(numbers())) == 1 + 3


def test_calls_go_to_the_phase_they_are_made_in():
    with PythonCalls() as calls:
        leaf()
        calls.enter(Phase.FORWARD)
        leaf()
        calls.enter(Phase.BACKWARD)
        twice()
    leaf()
    assert calls.by_phase() == {Phase.FORWARD: 1, Phase.BACKWARD: 3}


def test_all_calls_of_threads_that_start_inside_count():
    def many():
        for _ in range(2000):
            leaf()

    def work():
        threads = list(map(threading.Thread, [None] * 4, [many] * 4))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert counted(work) == 1 + 4 * 2001


def test_frames_of_the_harness_do_not_count_but_their_callees_do():
    class Tree(list):
        pass

    assert counted(lambda: device_of([], "cpu")) > 1
    before = counted(lambda: contextlib.suppress(ValueError))
    assert before == 2


def test_no_call_counts_after_the_block():
    with contextlib.suppress(KeyError), PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        raise KeyError
    seen = calls.by_phase()
    leaf()
    assert calls.by_phase()[Phase.FORWARD] == seen[Phase.FORWARD] + 1, (
        "each call of by_phase adds one to the counters; the leaf must add none"
    )
