"""Wrappers on four CPU lanes, in sequence by default, with their sets and threads."""

import threading
import time

import pytest
import torch

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.dispatch import TRIES
from tests.parallel.models import Call

LANES = 4


def wrap(base, **policy):
    return DataParallel(base, ["cpu"] * LANES, policy=Policy(**{"dispatch": "sequence", **policy}))


def sets_of(wrapper):
    return wrapper._replicas._sets


def train(wrapper, steps):
    for _ in range(steps):
        wrapper.zero_grad()
        wrapper(torch.randn(8, 5)).square().sum().backward()


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
