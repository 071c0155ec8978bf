"""The judgement as JSON."""

import json

import pytest
from pydantic import ValidationError

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.json_form import EXIT_CODES, gate_json
from tests.report.gate.making_gate import BROKEN, EVERY, LANES, SLOWER, judged


def test_every_verdict_has_its_exit_code() -> None:
    assert {verdict: EXIT_CODES[Verdict(verdict)] for verdict in ("pass", "slower", "undecided", "broken")} == {
        "pass": 0,
        "slower": 1,
        "undecided": 2,
        "broken": 3,
    }
    assert set(EXIT_CODES) == set(Verdict)


@pytest.mark.parametrize("name", EVERY)
def test_the_json_is_strict_and_complete(name: str) -> None:
    found = gate_json(EVERY[name])
    assert list(found)[:3] == ["schema", "verdict", "exit_code"]
    assert found["schema"] == 1
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again.pop("schema") == 1
    assert again.pop("exit_code") == EXIT_CODES[EVERY[name].verdict]
    assert Judgement.model_validate(again) == EVERY[name]


def test_the_names_and_values_of_the_fields() -> None:
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


def test_a_judgement_refuses_nan() -> None:
    with pytest.raises(ValidationError, match="finite"):
        judged(duration_s=float("nan"))
