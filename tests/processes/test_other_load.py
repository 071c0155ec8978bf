import time

import pytest

from dpbench.processes.other_load import LoadMeter, OtherLoad


@pytest.mark.parametrize(("busy", "warns"), [(0.0, False), (1.0, False), (1.1, True), (9.0, True)])
def test_a_busy_machine_is_named_once_more_than_half_is_busy(busy, warns):
    found = OtherLoad(busy, 2).warning()
    assert bool(found) is warns
    assert all(f"other processes keep {busy:.1f} of 2 cores busy" in line for line in found)


def test_the_effect_is_that_of_the_command():
    assert OtherLoad(2.0, 2).warning("so it is") == [
        "other processes keep 2.0 of 2 cores busy: this takes longer, and so it is"
    ]


def test_a_mean_over_a_short_time_is_not_read():
    begin_s = time.monotonic()
    assert LoadMeter().read(0.3) is not None
    assert time.monotonic() - begin_s >= 0.3
