"""A machine that is too busy for times, the budgets of steps and suites, and what an undecided verdict needs."""

import pytest

from dpbench.gate import run_gate
from dpbench.gate.judgement import Verdict
from dpbench.gate.prepare import GateRequest
from dpbench.gate.run_gate import _budget_that_decides, _without_times_if_busy
from dpbench.gate.settings import BorrowedBenchmark, Settings
from dpbench.gate.tier1 import Times
from tests.gate.making_rounds import benchmark
from tests.report.gate.making_gate import time, unmeasured


@pytest.mark.parametrize(
    ("request_", "wanting", "tiers", "said"),
    [
        (GateRequest("main"), 0.5, (0, 1), []),
        (GateRequest("main"), 2.0, (0, 1), ["2.0 processes for each core want to run: this takes longer"]),
        (GateRequest("main"), 4.1, (0,), ["the machine is too busy for times: 4.1 processes"]),
        (GateRequest("main", tiers=(0, 1, 2)), 9.0, (0, 2), ["the machine is too busy for times: 9.0 processes"]),
        (GateRequest("main", takes_times_anyway=True), 9.0, (0, 1), []),
        (GateRequest("main", tiers=(0,)), 9.0, (0,), []),
    ],
)
def test_a_busy_machine_takes_no_times_unless_they_are_asked_for(monkeypatch, request_, wanting, tiers, said):
    waits, lines = [], []
    monkeypatch.setattr(run_gate, "wait_for_quiet", lambda limit_s, _: (waits.append(limit_s), wanting)[1])
    monkeypatch.setattr(run_gate, "prepare", lambda *_: None)
    found, why = _without_times_if_busy(request_, None, lines.append)
    assert found.tiers == tiers
    assert [line.startswith(start) for line, start in zip(lines, said, strict=True)] == [True] * len(said)
    assert (why is not None) == (tiers != request_.tiers)
    assert why is None or "run with --wait-for-quiet 10m, or with --tiers 0,1" in why
    assert waits in ([], [0.0])


def test_a_suite_has_the_half_that_steps_leave(monkeypatch):
    asked = []

    def measured(group, _, *, budget_s, of, **__):
        asked.append(([each.name for each in group], round(budget_s), of))
        return Times(tuple(time(each.name, verdicts[each.name]) for each in group), {}, None)

    own, lent = benchmark("step"), BorrowedBenchmark(name="time_x", workload="asv time_x", threshold=0.02)
    monkeypatch.setattr(run_gate, "measure_times", measured)

    def times(*benchmarks):
        asked.clear()
        prepared = type("Prepared", (), {"settings": Settings(benchmarks=benchmarks)})
        return run_gate._times(GateRequest("main"), prepared, None, 100.0, lambda *_: None)

    verdicts = {"step": "pass", "time_x": "pass"}
    assert [each.benchmark for each in times(lent, own).judgements] == ["step", "time_x"]
    assert asked == [(["step"], 50, 2), (["time_x"], 100, 2)]
    times(own)
    assert asked == [(["step"], 100, 1)]
    times(lent)
    assert asked == [(["time_x"], 100, 1)]
    verdicts["step"] = "slower"  # the verdict is sure, so nothing more is measured
    times(own, lent)
    assert asked == [(["step"], 50, 2), (["time_x"], 0, 2)]


def test_an_undecided_verdict_names_a_budget():
    undecided = (unmeasured("a", Verdict.UNDECIDED),)
    assert _budget_that_decides(Times((time("a"),), {}, None), 300.0) is None
    assert _budget_that_decides(Times((time("a", "slower"), *undecided), {}, None), 300.0) is None
    needs = _budget_that_decides(Times(undecided, {}, None, (), 200.0), 300.0)
    assert needs == "--budget 10m would decide it, if the machine stays as it is"
    assert _budget_that_decides(Times(undecided, {}, None, (), None), 300.0) == "more time is not likely to decide it"
