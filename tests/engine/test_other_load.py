import time

import pytest

from dpbench.cases.host import usable_cores
from dpbench.engine import other_load
from dpbench.engine.other_load import LoadMeter, OtherLoad, processes_wanting, wait_for_quiet
from tests.fakes import ScriptedClock


@pytest.mark.parametrize(("busy", "warns"), [(0.0, False), (1.0, False), (1.1, True), (9.0, True)])
def test_a_busy_machine_is_named_once_more_than_half_is_busy(busy, warns):
    warnings = OtherLoad(busy, 2).warning()
    assert bool(warnings) is warns
    assert all(f"other processes keep {busy:.1f} of 2 cores busy" in line for line in warnings)


def test_the_effect_is_that_of_the_command():
    assert OtherLoad(2.0, 2).warning("so it is") == [
        "other processes keep 2.0 of 2 cores busy: this takes longer, and so it is"
    ]


def test_a_mean_over_a_short_time_is_not_read():
    begin_s = time.monotonic()
    assert LoadMeter().read(0.3) is not None
    assert time.monotonic() - begin_s >= 0.3


def test_a_busy_machine_is_waited_for_as_long_as_was_asked(monkeypatch):
    clock, said, loads = ScriptedClock(), [], iter([9.0, 6.0, 4.0])
    monkeypatch.setattr(other_load.time, "monotonic", clock)
    monkeypatch.setattr(other_load.time, "sleep", clock.advance)
    assert wait_for_quiet(60.0, lambda *words: said.append(words), lambda: next(loads)) == 4.0
    assert [left_s for _, left_s in said] == [60.0, 50.0]
    assert said[0][0] == "9.0 processes for each core want to run: waiting for at most 4"
    assert wait_for_quiet(0.0, said.append, lambda: 9.0) == 9.0
    assert len(said) == 2
    assert wait_for_quiet(25.0, lambda *_: None, lambda: 9.0) == 9.0
    assert clock() == pytest.approx(45.0)


@pytest.mark.parametrize(
    ("text", "wanting"), [("9.1 8.2 7.3 17/300 99", 16), ("0 0 0 1/2 3", 0), ("nothing", 0), ("", 0)]
)
def test_processes_that_want_to_run_are_counted_without_this_one(tmp_path, monkeypatch, text, wanting):
    monkeypatch.setattr(other_load.time, "sleep", lambda _: None)
    (tmp_path / "loadavg").write_text(text)
    assert processes_wanting(tmp_path / "loadavg") == wanting / usable_cores()
    assert processes_wanting(tmp_path / "none") == 0
