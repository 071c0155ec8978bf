"""As `test_traces.py`, where the lanes have streams and memory of their own."""

import pytest

from tests.parallel.traces import LANES, TRACES, check


@pytest.mark.parametrize("name", TRACES)
def test_nothing_of_an_earlier_forward_shows(name):
    check([f"sim:{i}" for i in range(LANES)], name)
