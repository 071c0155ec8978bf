import pytest

from dpbench.processes.other_load import OtherLoad


@pytest.mark.parametrize(("busy", "warns"), [(0.0, False), (1.0, False), (1.1, True), (9.0, True)])
def test_a_busy_machine_is_named_once_more_than_half_is_busy(busy, warns):
    found = OtherLoad(busy, 2).warning()
    assert bool(found) is warns
    assert all(f"other processes keep {busy:.1f} of 2 cores busy" in line for line in found)
