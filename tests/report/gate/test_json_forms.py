"""The judgement as JSON: strict, complete, with the exit code."""

import json

import pytest
from pydantic import ValidationError

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.forms import EXIT_CODES, gate_json
from tests.report.gate.making_gate import EVERY, judged


def test_every_verdict_has_its_exit_code() -> None:
    assert {verdict: EXIT_CODES[Verdict(verdict)] for verdict in ("pass", "slower", "undecided", "broken")} == {
        "pass": 0,
        "slower": 1,
        "undecided": 4,
        "broken": 3,
    }
    assert set(EXIT_CODES) == set(Verdict)


@pytest.mark.parametrize("name", EVERY)
def test_the_json_is_strict_and_complete(name: str) -> None:
    fields = gate_json(EVERY[name])
    assert list(fields)[:3] == ["schema", "verdict", "exit_code"]
    assert fields["schema"] == 1
    again = json.loads(json.dumps(fields, allow_nan=False))
    assert again.pop("schema") == 1
    assert again.pop("exit_code") == EXIT_CODES[EVERY[name].verdict]
    assert Judgement.model_validate(again) == EVERY[name]


def test_a_judgement_refuses_nan() -> None:
    with pytest.raises(ValidationError, match="finite"):
        judged(duration_s=float("nan"))
