"""The judgement as JSON: dpbench's own object, and Bencher Metric Format."""

import json

import pytest
from pydantic import ValidationError

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.forms import EXIT_CODES, gate_bencher, gate_json
from tests.report.gate.making_gate import BROKEN, COUNTS, EVERY, LANES, PASS, SLOWER, STEP, counter, judged


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


def test_bencher_gets_heads_times_in_nanoseconds_and_heads_counters() -> None:
    found = json.loads(gate_bencher(SLOWER))
    assert set(found) == {STEP, LANES, COUNTS}
    assert found[LANES]["latency"] == pytest.approx(
        {"value": 10.52e6, "lower_value": 10.52e6 * 1.041 / 1.052, "upper_value": 10.52e6 * 1.063 / 1.052}
    )
    assert found[LANES]["head-over-base"] == {"value": 1.052, "lower_value": 1.041, "upper_value": 1.063}
    assert found[COUNTS] == {
        "forward operators": {"value": 2001},
        "copies sim:0->sim:1": {"value": 4},
        "new kernels": {"value": 7},
    }


def test_bencher_gets_no_number_that_was_not_measured() -> None:
    assert json.loads(gate_bencher(BROKEN)) == json.loads(gate_bencher(EVERY["one broken"])) == {}
    assert json.loads(gate_bencher(judged(counters=(counter(3, None),)))) == {}
    assert list(json.loads(gate_bencher(PASS))) == [STEP]


@pytest.mark.parametrize("name", EVERY)
def test_bencher_accepts_every_judgement(name: str) -> None:
    """As https://bencher.dev/bmf.json, and the limits of names in the format's description."""
    for benchmark, measures in json.loads(gate_bencher(EVERY[name])).items():
        assert 0 < len(benchmark) <= 1024
        assert benchmark.isprintable()
        for measure, metric in measures.items():
            assert 0 < len(measure) <= 64
            assert set(metric) in ({"value"}, {"value", "lower_value", "upper_value"})
            assert metric.get("lower_value", 0) <= metric["value"] <= metric.get("upper_value", metric["value"])
