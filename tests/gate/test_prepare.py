"""The tiers that a busy machine can take."""

import pytest

from dpbench.gate import prepare as prepare_module
from dpbench.gate.prepare import GateRequest, _possible_tiers


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
    monkeypatch.setattr(prepare_module, "wait_for_quiet", lambda limit_s, _: (waits.append(limit_s), wanting)[1])
    possible, why = _possible_tiers(request_, lines.append)
    assert possible == tiers
    assert [line.startswith(start) for line, start in zip(lines, said, strict=True)] == [True] * len(said)
    assert (why is not None) == (tiers != request_.tiers)
    assert why is None or "run with --wait-for-quiet 10m, or with --tiers 0,1" in why
    assert waits in ([], [0.0])
