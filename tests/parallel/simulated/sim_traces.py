"""As `test_traces.py`, where the lanes have streams and memory of their own."""

import pytest
import torch

from tests.parallel.traces import BETWEEN_STEPS, IN_FORWARD, LANES, check

DEVICES = [f"sim:{i}" for i in range(LANES)]


@pytest.fixture(autouse=True)
def _unswapped():
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("name", IN_FORWARD)
def test_what_a_forward_does_to_its_weights_does_not_reach_the_next(name):
    check(DEVICES, in_forward=IN_FORWARD[name])


@pytest.mark.parametrize("name", BETWEEN_STEPS)
def test_what_happens_between_two_steps_shows_in_the_second(name):
    check(DEVICES, between=BETWEEN_STEPS[name], scale_needs_grad=name.startswith("buffer"))
