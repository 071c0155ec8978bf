"""Choosing the dispatch by measuring."""

import threading

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.dispatch import TRIES, Autotuner
from tests.parallel.models import Call, mlp


def fed(times):
    """The choices that an autotuner gives if each choice takes a fixed time."""
    trial, ways = Autotuner(list(times)), []
    for _ in range(len(times) * TRIES + 4):
        way = trial.next_choice()
        ways.append(way)
        trial.add(way, times[way])
    return ways


def test_each_choice_is_tried_in_turn_and_the_fastest_kept():
    assert fed({"a": 2.0, "b": 1.0}) == ["a", "b"] * TRIES + ["b"] * 4
    assert fed({"a": 1.0, "b": 2.0}) == ["a", "b"] * TRIES + ["a"] * 4


def test_the_first_choice_is_left_only_for_a_gain_above_five_percent():
    assert fed({"a": 1.0, "b": 0.96, "c": 0.97})[-1] == "a"
    assert fed({"a": 1.0, "b": 0.94, "c": 0.93})[-1] == "c"


def test_the_first_try_of_each_choice_does_not_count():
    trial = Autotuner(["a", "b"])
    for i in range(2 * TRIES):
        way = trial.next_choice()
        trial.add(way, {"a": 0.1 if i == 0 else 3.0, "b": 100.0 if i == 1 else 2.0}[way])
    assert trial.next_choice() == "b"


def test_a_choice_stays_once_made():
    trial = Autotuner(["a", "b"])
    for _ in range(TRIES):
        trial.add("a", 2.0)
        trial.add("b", 1.0)
    trial.add("a", 0.5)
    assert trial.next_choice() == "b"


def test_a_failed_call_adds_no_time():
    trial = Autotuner(["a", "b"])
    ways = []

    def fail():
        ways.append(trial.next_choice())
        with trial.timed(ways[-1]):
            raise ValueError("failed")

    for _ in range(3):
        with pytest.raises(ValueError, match="failed"):
            fail()
    assert ways == ["a"] * 3


def test_each_kind_of_call_has_its_own_choice():
    wrapper = DataParallel(mlp(), ["cpu"] * 3, policy=Policy(dispatch="auto"))
    for _ in range(2 * TRIES):
        wrapper(torch.randn(6, 5))
    with torch.no_grad():
        wrapper(torch.randn(6, 5))
    wrapper(torch.randn(2, 5))
    wrapper.eval()(torch.randn(2, 5))
    kinds = {(True, True, 3), (False, True, 3), (True, True, 2), (True, False, 2)}
    assert set(wrapper._dispatcher._autotuners) == kinds


def test_replicas_that_cache_parametrized_weights_run_in_sequence():
    """On threads a lane would get another's weight: torch has one cache, by the base's modules."""
    threads = set()

    def forward(self, x):
        threads.add(threading.get_ident())
        with parametrize.cached():
            return self.inner(self.inner(x))

    inner = parametrizations.spectral_norm(torch.nn.Linear(3, 3))
    wrapper = DataParallel(Call(forward, inner=inner), ["cpu"] * 3)
    for _ in range(2 * TRIES + 4):
        wrapper(torch.randn(6, 3))
    assert threads == {threading.get_ident()}


def test_threads_that_cache_parametrized_weights_are_warned_of():
    def forward(self, x):
        with parametrize.cached():
            return x

    wrapper = DataParallel(Call(forward), ["cpu"] * 3, policy=Policy(dispatch="threads"))
    with pytest.warns(UserWarning, match=r'parametrize\.cached has been used.*Policy\(dispatch="sequence"\)'):
        wrapper(torch.randn(6, 3))
