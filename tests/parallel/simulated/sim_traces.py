"""`test_traces.py` on devices with streams and memory."""

import pytest

from tests.parallel.traces import LANES, TRACES, check


@pytest.mark.parametrize("name", TRACES)
def test_a_cached_replica_shows_nothing_of_an_earlier_forward(name):
    check([f"sim:{i}" for i in range(LANES)], name)
