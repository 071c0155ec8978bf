"""Wrappers on CPU lanes, or on simulated devices in a process that simulates them: a device for each lane.

So one test runs on both: `test_*.py` defines it, and a file in `simulated/` takes it over by `taken_from`.
"""

import multiprocessing
import threading
import time
import warnings
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.dispatch import TRIES
from tests.parallel.models import Call

LANES = 4
KIND = "sim" if hasattr(torch, "sim") else "cpu"
assert_close = partial(torch.testing.assert_close, check_device=False)


def devices(count=LANES):
    return [f"sim:{i}" for i in range(count)] if KIND == "sim" else ["cpu"] * count


FIRST = torch.device(devices(1)[0])


def wrap(base, lanes=LANES, **policy):
    """A wrapper in sequence, unless the policy says otherwise; its base moves to the first device."""
    return DataParallel(base.to(FIRST), devices(lanes), policy=Policy(**{"dispatch": "sequence", **policy}))


def taken_from(module, *but):
    """The tests that a module defines, but for those named."""
    assert set(but) <= set(vars(module))
    return {name: value for name, value in vars(module).items() if name.startswith("test_") and name not in but}


def sets_of(wrapper):
    return wrapper._replicas.sets._sets


def train(wrapper, steps):
    for _ in range(steps):
        wrapper.zero_grad()
        wrapper(torch.randn(8, 5)).square().sum().backward()


def run_at_once(call, arguments):
    """Call it with each argument, each on a thread of its own; return when all have ended."""
    threads = [threading.Thread(target=call, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def exit_code_of(child):
    """The exit code of a fork that calls `child`; None if it hangs."""
    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    process.start()
    process.join(60)
    exit_code = process.exitcode
    process.kill()
    return exit_code


def assert_leaves_threads(begin, warning):
    """Assert that `auto` leaves threads with this warning when forwards start to call `begin`."""
    threads, begun = [], []

    def forward(self, x):
        threads.append(threading.get_ident())
        time.sleep(0.01)
        if begun:
            begin()
        return x

    wrapper = wrap(Call(forward), dispatch="auto")

    def lane_threads():
        threads.clear()
        wrapper(torch.zeros(8, 1))
        return len(set(threads))

    for _ in range(2 * TRIES):
        lane_threads()
    assert lane_threads() == LANES
    begun.append(True)
    with pytest.warns(UserWarning, match=warning):
        assert lane_threads() == LANES
    assert [lane_threads() for _ in range(3)] == [1] * 3
