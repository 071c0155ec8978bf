"""What a forward does to its weights, or anyone between two steps, shows where it should and nowhere else."""

import pytest

from tests.gpu.device import DEVICE, skip_without_gpu
from tests.parallel.traces import BETWEEN_STEPS, IN_FORWARD, LANES, check

pytestmark = pytest.mark.gpu
skip_without_gpu()

DEVICES = [DEVICE] * LANES


@pytest.mark.parametrize("name", IN_FORWARD)
def test_what_a_forward_does_to_its_weights_does_not_reach_the_next(name):
    check(DEVICES, in_forward=IN_FORWARD[name])


@pytest.mark.parametrize("name", BETWEEN_STEPS)
def test_what_happens_between_two_steps_shows_in_the_second(name):
    check(DEVICES, between=BETWEEN_STEPS[name], scale_needs_grad=name.startswith("buffer"))
