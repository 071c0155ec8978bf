"""The judgement for machines."""

import json

import pytest
from pydantic import ValidationError

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.json_form import EXIT_CODES, gate_json
from tests.report.making_gate import BROKEN, EVERY, LANES, SLOWER, judged


def test_every_verdict_has_its_exit_code() -> None:
    assert {verdict: EXIT_CODES[Verdict(verdict)] for verdict in ("pass", "slower", "undecided", "broken")} == {
        "pass": 0,
        "slower": 1,
        "undecided": 2,
        "broken": 3,
    }
    assert set(EXIT_CODES) == set(Verdict)


@pytest.mark.parametrize("name", EVERY)
def test_nothing_is_lost_and_it_is_strict_json(name: str) -> None:
    found = gate_json(EVERY[name])
    assert list(found)[:3] == ["schema", "verdict", "exit_code"]
    assert found["schema"] == 1
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again.pop("schema") == 1
    assert again.pop("exit_code") == EXIT_CODES[EVERY[name].verdict]
    assert Judgement.model_validate(again) == EVERY[name]


def test_the_fields_are_as_they_are_written_down() -> None:
    found = gate_json(SLOWER)
    assert found["verdict"] == "slower"
    assert found["counters"][1]["is_worse"] is False
    assert found["times"][1] | {"why": ""} == {
        "benchmark": LANES,
        "verdict": "slower",
        "why": "",
        "threshold": 0.02,
        "rounds": 24,
        "looks": 3,
        "cores": "1",
        "base_step_s": 0.01,
        "head_step_s": 0.01052,
        "ratio": {"value": 1.052, "low": 1.041, "high": 1.063},
        "twin": {"value": 1.001, "low": 0.997, "high": 1.005},
        "detectable": 0.011,
        "accepted": None,
    }
    assert gate_json(BROKEN)["times"] == []


def test_what_is_not_finite_cannot_be_judged() -> None:
    with pytest.raises(ValidationError, match="finite"):
        judged(duration_s=float("nan"))
