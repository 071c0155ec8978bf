"""The speed of a network interface, as the system reports it."""

import pytest

from dpbench.cases.host import link_mbit_per_s


@pytest.mark.parametrize(("text", "speed"), [("100000\n", 100_000), ("-1\n", None), ("0\n", None), ("", None)])
def test_the_drivers_speed_if_it_knows_one(tmp_path, text, speed):
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0/speed").write_text(text)
    assert link_mbit_per_s("eth0", tmp_path) == speed


def test_an_interface_that_is_absent_or_has_no_speed_is_none(tmp_path):
    assert link_mbit_per_s("eth0", tmp_path) is None
    assert link_mbit_per_s("lo") is None  # reading its file is an error of the kernel
