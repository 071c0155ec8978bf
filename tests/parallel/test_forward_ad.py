"""Replicas that use forward-mode AD run in sequence, since all threads share its level."""

import re
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

from dpbench.parallel import thread_state as thread_hazards
from dpbench.parallel.dispatch import TRIES
from tests.parallel.models import Call
from tests.parallel.on_lanes import assert_leaves_threads, wrap

STEPS = 2 * TRIES + 4
WARNING = r'forward-mode AD has been used.*Policy\(dispatch="sequence"\)'


@pytest.fixture
def use(monkeypatch):
    """A function that leaves the sign of a use of forward-mode AD, for this test only."""
    monkeypatch.setattr(thread_hazards, "FORWARD_AD", "somebodys")
    return lambda: monkeypatch.setitem(sys.modules, "somebodys", torch)


def jvp_on_each_lane():
    """Run by the next test in its own process."""
    used_in = set()

    def forward(self, x):
        used_in.add(threading.get_ident())
        return torch.func.jvp(lambda y: (time.sleep(0.001), y.sin())[1], (x,), (x,))[1]

    wrapper, x = wrap(Call(forward), dispatch="auto"), torch.randn(8, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for training in (True, False):
            wrapper.train(training)
            for _ in range(STEPS):
                torch.testing.assert_close(wrapper(x), x.cos() * x)
    assert used_in == {threading.get_ident()}


def test_auto_sees_that_jvp_has_been_used():
    code = "import tests.parallel.test_forward_ad as here; here.jvp_on_each_lane()"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-3000:]


def test_after_a_first_use_on_threads_auto_runs_in_sequence(use):
    assert_leaves_threads(use, WARNING)


def test_after_a_use_outside_the_wrapper_auto_uses_no_threads(use):
    threads = set()

    def forward(self, x):
        threads.add(threading.get_ident())
        time.sleep(0.01)
        return x

    wrapper = wrap(Call(forward), dispatch="auto")
    for _ in range(2 * TRIES):
        wrapper(torch.zeros(8, 1))
    use()
    threads.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        wrapper(torch.zeros(8, 1))
    assert threads == {threading.get_ident()}


def test_requested_threads_go_on_with_one_warning(use):
    wrapper = wrap(Call(lambda self, x: (use(), x)[1]), dispatch="threads")
    with pytest.warns(UserWarning, match=WARNING) as caught:
        assert [wrapper(torch.zeros(8, 1)).shape for _ in range(3)] == [(8, 1)] * 3
    assert len(caught) == 1


@pytest.mark.usefixtures("_quick_watchdog")
@pytest.mark.parametrize("is_used", [True, False])
def test_rescued_replicas_are_warned_of(use, is_used):
    wrapper = wrap(Call(lambda self, x: (time.sleep(0.3), is_used and use(), x)[-1]), dispatch="auto")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapper(torch.zeros(8, 1))
    assert [bool(re.search(WARNING, str(warning.message))) for warning in caught] == [False, True][: 1 + is_used]
