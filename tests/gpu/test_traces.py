"""What a forward does to its weights, or anyone between two steps, shows where it should and nowhere else."""

import pytest

from tests.gpu.device import DEVICE, skip_without_gpu
from tests.parallel.traces import LANES, TRACES, check

pytestmark = pytest.mark.gpu
skip_without_gpu()


@pytest.mark.parametrize("name", TRACES)
def test_nothing_of_an_earlier_forward_shows(name):
    check([DEVICE] * LANES, name)
