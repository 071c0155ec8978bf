"""Settings that replicas set and put back keep their values, or the user is warned."""

import threading
import time
import warnings

import pytest
import torch
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpbench.parallel.dispatch import TRIES
from tests.parallel.models import Call
from tests.parallel.on_lanes import LANES, no_warnings, wrap

WARNING = r'replicas left .* changed.*Policy\(dispatch="sequence"\)'


def settings():
    switches = (cuda.flash_sdp_enabled, cuda.mem_efficient_sdp_enabled, cuda.math_sdp_enabled, cuda.cudnn_sdp_enabled)
    return [torch.get_default_dtype(), *(is_on() for is_on in switches)]


@pytest.fixture(autouse=True)
def before():
    """The settings before the test, which are put back after it."""
    dtype, *switches = kept = settings()
    yield kept
    torch.set_default_dtype(dtype)
    enables = (cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp, cuda.enable_cudnn_sdp)
    for enable, is_on in zip(enables, switches, strict=True):
        enable(is_on)


def attending(is_threaded):
    """A module that sets attention's backend and puts it back.

    On threads the lanes enter one after the other and leave in the same order. So the last lane puts back the value
    that the others have set.
    """
    entered, left = ([threading.Event() for _ in range(LANES)] for _ in range(2))

    def forward(self, x):
        here = x[0].long().item()
        if is_threaded() and here:
            entered[here - 1].wait(timeout=60)
        with sdpa_kernel(SDPBackend.MATH):
            entered[here].set()
            time.sleep(0.01)
            if is_threaded():
                entered[-1].wait(timeout=60)
                if here:
                    left[here - 1].wait(timeout=60)
        left[here].set()
        return x

    return Call(forward)


def test_auto_puts_settings_back_and_runs_in_sequence_from_then_on(before):
    threads = set()
    base = attending(lambda: len(threads) > 1)
    base.register_forward_pre_hook(lambda *_: threads.add(threading.get_ident()))
    wrapper = wrap(base, dispatch="auto")
    x = torch.arange(float(LANES))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2 * TRIES):
            wrapper(x)
            assert settings() == before
    assert len(caught) == 1
    threads.clear()
    wrapper(x)
    assert threads == {threading.get_ident()}


def test_requested_threads_are_warned_of(before):
    wrapper = wrap(attending(lambda: True), dispatch="threads")
    with pytest.warns(UserWarning, match=WARNING):
        wrapper(torch.arange(float(LANES)))
    assert settings() != before


def test_a_setting_that_a_forward_changes_for_good_stays(before):
    wrapper = wrap(Call(lambda self, x: (torch.set_default_dtype(torch.float64), x)[1]), dispatch="auto")
    with no_warnings():
        for _ in range(2 * TRIES):
            wrapper(torch.arange(float(LANES)))
            assert settings() == [torch.float64, *before[1:]]
