"""Writes to weights, in a forward or between two steps, show in the right forwards only."""

import pytest

from tests.gpu.device import DEVICE, skip_without_gpu
from tests.parallel.traces import LANES, TRACES, check

pytestmark = pytest.mark.gpu
skip_without_gpu()


@pytest.mark.parametrize("name", TRACES)
def test_an_earlier_forward_leaves_no_trace(name):
    check([DEVICE] * LANES, name)
