"""Counters by name, and what changed in them."""

import pytest
from pydantic import ValidationError

from dpbench.cases.case import Case
from dpbench.records.count_record import Change, CountRecord, Counts, Dependencies, Phase, PhaseCounts, Traffic, diff
from dpbench.records.record import Outcome

CASE = Case(variant="naive", workload="mlp/tiny", batch=8, devices=("sim:0", "sim:1"), threads=1)
COUNTS = Counts(
    phases={
        Phase.FORWARD: PhaseCounts(operators=3, copies={"sim:0->sim:1": Traffic(count=1, size_bytes=64)}),
        Phase.BACKWARD: PhaseCounts(operators=0, copies={}),
    },
    dependencies=Dependencies(
        reduced_bytes=1,
        ready_at_half_bytes=2,
        startable_at_half_bytes=3,
        issued_at_half_bytes=3,
        operators_before_issue=6,
        issue_swaps=7,
        broadcast_bytes=4,
        before_first_layer_bytes=5,
    ),
)


def test_each_counter_has_a_name_and_what_is_not_counted_has_none():
    names = COUNTS.by_name()
    assert names["forward.operators"] == 3
    assert names["forward.copies.sim:0->sim:1.count"] == 1
    assert names["forward.copies.sim:0->sim:1.size_bytes"] == 64
    assert names["backward.operators"] == 0
    assert names["dependencies.before_first_layer_bytes"] == 5
    assert len(names) == 4 + 8


def test_a_diff_sees_changed_appeared_and_vanished_counters():
    changes = diff({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 0})
    assert changes == (Change("a", 1, None), Change("c", 3, 4), Change("d", None, 0))
    assert [str(change) for change in changes] == ["a: 1 expected, not counted", "c: 3 -> 4", "d: 0, not expected"]
    assert diff({"a": 1}, {"a": 1}) == ()


@pytest.mark.parametrize(
    "fields", [{"outcome": "ok"}, {"outcome": "crashed"}, {"outcome": "crashed", "reason": "x", "counts": COUNTS}]
)
def test_only_ok_has_counts_and_all_else_a_reason(fields):
    with pytest.raises(ValidationError):
        CountRecord(case=CASE, **fields)


def test_why_is_the_first_and_the_last_line():
    reason = "ended with exit status 1\nTraceback\nKeyError: 'x'"
    failed = CountRecord(case=CASE, outcome=Outcome.CRASHED, reason=reason)
    assert failed.why == "crashed: ended with exit status 1: KeyError: 'x'"
    assert CountRecord(case=CASE, outcome=Outcome.TIME_OUT, reason="not done").why == "time out: not done"
