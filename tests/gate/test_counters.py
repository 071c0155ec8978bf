"""The table of counters, and which worse ones are tolerated: a little work of the host, a little memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.gate.counters import KINDS, CounterKind, kind_of
from dpbench.gate.settings import SettingsError, Tolerances, load_settings
from dpbench.gate.verdict import judged_counters
from tests.report.gate.making_gate import counter

USUAL, NONE = Tolerances(), Tolerances(tolerated=0, memory=0)


def is_tolerated(name, base, head, tolerances=USUAL, is_worse=True):
    (change,) = judged_counters([counter(base, head, counter=name, is_worse=is_worse)], (), {}, tolerances)
    return change.tolerated


@pytest.mark.parametrize(
    ("name", "base", "head", "expected"),
    [
        ("forward.python_calls", 607, 613, True),
        ("forward.python_calls", 607, 627, True),
        ("forward.python_calls", 607, 628, False),
        ("forward.python_calls", 5000, 5050, True),
        ("forward.python_calls", 5000, 5051, False),
        ("forward.python_lines", 5000, 5050, True),
        ("backward.host_operators", 10, 30, True),
        ("forward.python_calls.growth", 100, 120, True),
        ("forward.python_calls", None, 20, True),
        ("forward.waits", 0, 1, True),
        ("forward.threading_calls", 0, 21, False),
        ("forward.threads_started", 0, 1, False),
        ("backward.peak_bytes.sim:0", 10_000, 10_100, True),
        ("backward.peak_bytes.sim:0", 10_000, 10_101, False),
        ("kept.python_blocks", 1000, 1004, False),
        ("more_steps.collections", 0, 1, False),
        ("forward.operators", 10_000, 10_001, False),
        ("forward.host_calls.host_wait", 0, 1, False),
        ("forward.copies.sim:0->sim:1.size_bytes", 10**9, 10**9 + 1, False),
        ("forward.allocations", 1000, 1001, False),
        ("dependencies.ready_at_half_bytes", 1000, 900, False),  # fewer are worse
    ],
)
def test_what_is_tolerated(name, base, head, expected):
    assert is_tolerated(name, base, head) is expected
    assert not is_tolerated(name, base, head, NONE)
    assert not is_tolerated(name, base, head, is_worse=False)


@given(st.integers(0, 10**7), st.integers(1, 10**5), st.integers(1, 10**5))
def test_more_is_never_tolerated_sooner(base, less, more):
    less, more = sorted((less, more))
    assert is_tolerated("x.python_calls", base, base + less) or not is_tolerated("x.python_calls", base, base + more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tolerated = 0", {"tolerated": 0.0}),
        ('tolerated = "2.5%"\nmemory = 0.5', {"tolerated": 0.025, "memory": 0.5}),
        ("calls = 0", {"calls": 0}),
    ],
)
def test_settings_name_the_tolerances(tmp_path, text, expected):
    (tmp_path / "gate.toml").write_text(f"[counts]\n{text}\n")
    assert load_settings(tmp_path / "gate.toml").counts == Tolerances(**expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tolerated = true", ("counts: tolerated", "True", "0 for none")),
        ('tolerated = "much"', ("counts: tolerated", "much", "0 for none")),
        ("tolerated = -1", ("counts: tolerated", "-1", "0 for none")),
        ('memory = "60%"', ("counts: memory", "60%", "at most 0.5")),
        ("calls = 1.5", ("counts: calls", "1.5", "a whole number from 0")),
        ("call = 1", ("counts: call: unknown", "calls")),
    ],
)
def test_wrong_tolerances_are_one_line(tmp_path, text, words):
    (tmp_path / "gate.toml").write_text(f"[counts]\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path / "gate.toml")
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


COUNTERS = (
    *("forward.python_calls", "forward.python_lines.growth", "backward.host_operators"),
    *("forward.turns", "forward.python_peak_bytes", "forward.peak_bytes.sim:0"),
    *("dependencies.ready_at_half_bytes", "dependencies.passed_on_bytes", "kept.python_blocks"),
    *("uses.once_copied.python_calls", "uses.once_start.modules", "uses.step.host_operators"),
    *("uses.step.absent", "uses.step.python_lines", "setup.broadcast.count", "step.forward.all_reduce.count"),
)


def test_each_row_of_the_table_holds_for_a_counter_that_no_row_above_it_matches():
    assert {kind_of(counter) for counter in (*COUNTERS, "value (bytes)")} == set(KINDS)
    usual = ("forward.allocations", "forward.operators", "forward.host_calls.host_wait", "dependencies.issue_swaps")
    assert {kind_of(counter) for counter in (*usual, "value (s)")} == {CounterKind(".*")}
