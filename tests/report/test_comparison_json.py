import json

import pytest

from dpbench.report.comparison import comparisons_json
from dpbench.results.compare import compare
from dpbench.results.readings import Reading
from dpbench.sweep.plan import Skip
from tests.results.making import ENVIRONMENT, METRICS, case, failed, ok, telemetry

NAIVE = [ok(case("naive"), number, [0.2, 0.2, 0.2]) for number in range(2)]
TUNED = [ok(case("tuned"), number, [0.1, 0.1, 0.1]) for number in range(2)]
SINGLE = [ok(case("single", "cpu"), number, [0.08]) for number in range(2)]


def test_a_measured_case_has_every_field() -> None:
    found = comparisons_json(compare([*NAIVE, *TUNED, *SINGLE]))
    assert list(found) == ["schema", "environment", "cases", "ladders", "answers"]
    assert (found["schema"], found["environment"]) == (1, ENVIRONMENT.model_dump(mode="json"))
    assert [one["variant"] for one in found["cases"]] == ["single", "naive", "tuned"]
    tenth, half = pytest.approx(0.1), pytest.approx(0.5)
    assert json.loads(json.dumps(found["cases"][2], allow_nan=False)) == {
        "id": "tuned|mlp/tiny|b64|cpu*2|train|float32|random|t2|s0",
        "variant": "tuned",
        "workload": "mlp/tiny",
        "batch": 64,
        "devices": ["cpu", "cpu"],
        "mode": "train",
        "dtype": "float32",
        "steps_per_sample": 1,
        "outcome": "ok",
        "has_enough_samples": True,
        "step_time_s": {"median": tenth, "low": tenth, "high": tenth, "samples": 48},
        "ratio": {"to": "naive", "value": half, "low": half, "high": half},
        "percent_of_limit": None,
        "percent_of_single": pytest.approx(80),
        "counts": None,
        "phases_s": None,
        "slowest_rank_phases_s": None,
        "skew_s": None,
        "rank_lag_s": None,
        "machine_skew_s": None,
        "peak_rss_bytes": None,
        "by_device": None,
        "loss": None,
        "reason": None,
    }


def test_figures_beside_the_times_are_by_device_and_phase() -> None:
    metrics = METRICS.model_copy(
        update={
            "phases_s": {"forward": 0.5, "reduce": "none"},
            "phases_by_rank_s": ({"forward": 0.5, "reduce": "none"}, {"forward": 0.75, "reduce": "none"}),
            "skew_s": (0.1, 0.2, 0.3),
            "rank_lag_s": (0.0, 0.2),
            "peak_rss_bytes": 1000,
            "telemetry": {"cuda:0": telemetry(50.0), "cuda:1": "no driver"},
            "peak_device_bytes": {"cuda:0": Reading(value=7.0)},
        }
    )
    (one,) = comparisons_json(compare([NAIVE[0].model_copy(update={"metrics": metrics})]))["cases"]
    one = json.loads(json.dumps(one, allow_nan=False))
    known = {"reason": None, "rounds": 1, "rounds_without": 0, "source": None, "span_s": None}
    unknown = {"value": None, "rounds": 0, "rounds_without": 1, "source": None, "span_s": None}
    assert one["phases_s"] == {"forward": {"value": 0.5, **known}, "reduce": {**unknown, "reason": "none"}}
    assert one["slowest_rank_phases_s"]["forward"] == {"value": 0.75, **known}
    assert one["skew_s"] == {"value": 0.2, **known}
    assert one["rank_lag_s"] == [{"value": 0.0, **known}, {"value": 0.2, **known}]
    assert one["peak_rss_bytes"] == {"value": 1000, **known}
    busy, lost = one["by_device"]["cuda:0"], one["by_device"]["cuda:1"]
    assert busy["uuids"] == ["GPU-aa"]
    assert busy["sm_busy_percent"] == {"value": 50.0, **known}
    assert busy["throttled_s"] == {"power": {"value": 0.0, **known}, "thermal": {"value": 0.5, **known}}
    assert busy["peak_device_bytes"]["value"] == 7
    assert lost["power_w"] == {**unknown, "reason": "no driver"}


def test_fields_that_do_not_apply_are_null() -> None:
    lost = failed(case("ddp"), 0, "crashed", "signal 9").model_copy(update={"environment": None})
    found = comparisons_json(compare([lost], [Skip(case("torch_dp"), "no accelerator")]))
    assert found["environment"] is None
    stock, ddp = found["cases"]
    numbers = ("step_time_s", "ratio", "percent_of_limit", "percent_of_single", "counts")
    assert [stock[name] for name in numbers] == [ddp[name] for name in numbers] == [None] * 5
    assert (stock["outcome"], stock["reason"]) == ("skipped", "no accelerator")
    assert (ddp["outcome"], ddp["reason"]) == ("crashed", "signal 9")


def test_every_case_is_in_it_once_with_single_device_baselines() -> None:
    four = [ok(case("naive", "cpu*4"), number, [0.4]) for number in range(2)]
    share = [ok(case("single", "cuda:0", batch=32), 0, [0.01])]
    records = [*NAIVE, *SINGLE, *four, ok(case("tuned", "cuda*2"), 0, [0.02]), *share]
    cases = comparisons_json(compare(records))["cases"]
    ids = [one["id"] for one in cases]
    assert sorted(ids) == sorted({record.case.id for record in records})
    single = next(one for one in cases if one["variant"] == "single" and one["devices"] == ["cpu"])
    assert single["step_time_s"]["samples"] == 64
    assert (single["ratio"], single["percent_of_single"]) == (None, None)
    single_device_baseline = next(one for one in cases if one["batch"] == 32)
    assert (
        single_device_baseline["outcome"],
        single_device_baseline["ratio"],
        single_device_baseline["percent_of_limit"],
    ) == ("ok", None, None)


def test_one_round_has_an_interval_of_nulls() -> None:
    (one,) = comparisons_json(compare(NAIVE[:1]))["cases"]
    assert one["step_time_s"] == {"median": pytest.approx(0.2), "low": None, "high": None, "samples": 24}
    assert one["ratio"] == {"to": "naive", "value": 1.0, "low": None, "high": None}
