import json
import math
from dataclasses import asdict

import pytest
from pydantic import ValidationError

from dpbench.records.readings import Reading
from dpbench.records.record import SCHEMA, Record, RecordLineError, parse_line, to_line
from tests.records.making import METRICS, case, failed, ok, telemetry, thin

# As the first version wrote it.
SCHEMA_1 = b"""{"schema": 1, "run": "r", "case": {"variant": "tuned", "workload": "mlp/tiny", "batch": 8,
"devices": ["cuda:0"], "mode": "train", "dtype": "float32", "data": "random", "threads": 1, "seed": 0, "id": "x"},
"round": 0, "started_at": "2026-01-01T00:00:00.000+00:00", "outcome": "ok", "reason": null, "samples_s": [0.5],
"environment": {"hostname": "h", "os": "Linux", "python": "3.11.7", "torch": "2.13.0", "cpu_model": "EPYC", "cores": 2,
"gpus": ["A100"], "driver": "580", "cuda": "13.0", "nccl": "2.27", "dpbench": "0.1.0", "commit": null, "dirty": null},
"metrics": {"threads_per_lane": 1, "warmup_steps": 11, "stopped_by": "budget", "skew_s": null, "relative_error": 0.0,
"loss_first": 2.5, "loss_last": 0.9, "peak_rss_bytes": 336707584, "peak_device_bytes": {"cuda:0": 1024}}}
"""


@pytest.mark.parametrize(
    "record", [ok(case(), 0, [0.25, 1e-9, 3e7]), failed(case(), 3, "crashed", "signal 9\nlast \x1b[31m words é")]
)
def test_a_record_is_one_line_and_back(record: Record) -> None:
    line = to_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_line(line) == record


def test_readers_without_dpbench_find_schema_and_case_id() -> None:
    fields = json.loads(to_line(ok(case(), 2)))
    assert (fields["schema"], fields["case"]["id"], fields["round"]) == (SCHEMA, case().id, 2)


def test_schema_1_is_read() -> None:
    record = parse_line(SCHEMA_1)
    assert record.schema_ == 1
    assert record.metrics.peak_device_bytes == {"cuda:0": Reading(value=1024)}
    assert (record.metrics.telemetry, record.metrics.is_throttled) == (None, None)
    assert (record.environment.gil, record.environment.gpus) == (None, ("A100",))
    assert parse_line(SCHEMA_1.replace(b'{"cuda:0": 1024}', b"null")).metrics.peak_device_bytes is None


def test_a_sample_of_an_earlier_schema_has_one_step() -> None:
    assert parse_line(SCHEMA_1).case.steps_per_sample == 1
    fields = ok(case(), 0).to_json()
    assert fields["case"].pop("steps_per_sample") == 1
    assert parse_line(json.dumps({**fields, "schema": 2}).encode()).case == case()


def test_samples_are_stored_as_measured_and_read_as_steps() -> None:
    record = thin(case().model_copy(update={"steps_per_sample": 20}), 0, [2.0, 4.0])
    assert json.loads(to_line(record))["samples_s"] == [2.0, 4.0]
    assert parse_line(to_line(record)).step_times_s == (0.1, 0.2)


def test_readings_are_kept_whole() -> None:
    peaks = {"cuda:0": Reading(value=5, source="somewhere", span_s=2), "cpu": Reading(reason="has none")}
    record = ok(case(), 0).model_copy(update={"metrics": METRICS.model_copy(update={"peak_device_bytes": peaks})})
    assert parse_line(to_line(record)) == record


@pytest.mark.parametrize("fields", [{}, {"value": 1, "reason": "none"}, {"value": float("inf")}, {"source": "x"}])
def test_a_reading_is_a_value_or_a_reason(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Reading(**fields)


def test_an_unknown_field_of_telemetry_is_named() -> None:
    fields = ok(case(), 0).to_json()
    fields["metrics"]["telemetry"] = {"cuda:0": {**asdict(telemetry(50.0)), "more": 3}}
    with pytest.raises(
        RecordLineError, match=r"telemetry\.cuda:0\.DeviceTelemetry\.more: Unexpected keyword argument$"
    ):
        parse_line(json.dumps(fields).encode())


def test_a_loss_that_is_no_number_becomes_null() -> None:
    diverged = ok(case(), 0).model_copy(update={"metrics": METRICS.model_copy(update={"loss_last": math.nan})})
    assert b"NaN" not in to_line(diverged)
    assert parse_line(to_line(diverged)).metrics == METRICS


def test_what_could_not_be_read_again_cannot_be_made() -> None:
    fields = dict(ok(case(), 0))
    with pytest.raises(ValidationError, match=r"samples_s\.1"):
        Record(**{**fields, "samples_s": (0.1, math.nan)})


@pytest.mark.parametrize("wrong", [{"samples_s": (0.1,)}, {"reason": None}])
def test_a_failed_record_has_a_reason_and_no_samples(wrong: dict[str, object]) -> None:
    fields = failed(case(), 0, "crashed", "why").to_json() | wrong
    with pytest.raises(RecordLineError, match="needs a reason and has no samples_s"):
        parse_line(json.dumps(fields).encode())
