"""The judgement in Bencher Metric Format."""

import json

import pytest

from dpbench.report.gate.bencher import gate_bencher
from tests.report.gate.making_gate import BROKEN, COUNTS, EVERY, LANES, PASS, SLOWER, STEP, counter, judged


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
