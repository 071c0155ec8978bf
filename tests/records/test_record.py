import json
import math
import re
from dataclasses import asdict

import pytest
from pydantic import ValidationError

from dpbench.records.readings import Reading
from dpbench.records.record import Record
from dpbench.records.row import SCHEMA, OtherKindError, RowError, parse_line, to_line
from tests.records.making import METRICS, case, failed, ok, telemetry, thin


@pytest.mark.parametrize(
    "record", [ok(case(), 0, [0.25, 1e-9, 3e7]), failed(case(), 3, "crashed", "signal 9\nlast \x1b[31m words é")]
)
def test_a_record_is_one_line_and_back(record: Record) -> None:
    line = to_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_line(line, Record) == record


def test_readers_without_dpbench_find_schema_and_case_id() -> None:
    fields = json.loads(to_line(ok(case(), 2)))
    assert (fields["schema"], fields["case"]["id"], fields["round"]) == (SCHEMA, case().id, 2)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (b"5", "has schema 5, which dpbench of commit 640af4b2 reads; allowed: 6"),
        (b"7", "has schema 7, newer than this dpbench knows; allowed: 6"),
        (b"true", "has no schema number; allowed: 6"),
        (b"0", "has no schema number; allowed: 6"),
    ],
)
def test_a_record_of_another_schema_says_which_dpbench_reads_it(schema: bytes, why: str) -> None:
    with pytest.raises(RowError, match=re.escape(why)):
        parse_line(to_line(ok(case(), 0)).replace(b'"schema":6', b'"schema":' + schema), Record)


def test_a_row_of_another_kind_is_told_from_a_bad_one() -> None:
    with pytest.raises(OtherKindError, match="has kind 'gate'; allowed: record"):
        parse_line(b'{"schema": 6, "kind": "gate"}', Record)
    with pytest.raises(RowError, match="has kind None; allowed: record"):
        parse_line(b'{"schema": 6}', Record)


def test_samples_are_stored_as_measured_and_read_as_steps() -> None:
    record = thin(case().model_copy(update={"steps_per_sample": 20}), 0, [2.0, 4.0])
    assert json.loads(to_line(record))["samples_s"] == [2.0, 4.0]
    assert parse_line(to_line(record), Record).step_times_s == (0.1, 0.2)


def test_readings_are_kept_whole() -> None:
    peaks = {"cuda:0": Reading(value=5, source="somewhere", span_s=2), "cpu": Reading(reason="has none")}
    record = ok(case(), 0).model_copy(update={"metrics": METRICS.model_copy(update={"peak_device_bytes": peaks})})
    assert parse_line(to_line(record), Record) == record


@pytest.mark.parametrize("fields", [{}, {"value": 1, "reason": "none"}, {"value": float("inf")}, {"source": "x"}])
def test_a_reading_is_a_value_or_a_reason(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Reading(**fields)


def test_an_unknown_field_of_telemetry_is_named() -> None:
    fields = ok(case(), 0).to_json()
    fields["metrics"]["telemetry"] = {"cuda:0": {**asdict(telemetry(50.0)), "more": 3}}
    with pytest.raises(RowError, match=r"telemetry\.cuda:0\.DeviceTelemetry\.more: Unexpected keyword argument$"):
        parse_line(json.dumps(fields).encode(), Record)


def test_a_loss_that_is_no_number_becomes_null() -> None:
    diverged = ok(case(), 0).model_copy(update={"metrics": METRICS.model_copy(update={"loss_last": math.nan})})
    assert b"NaN" not in to_line(diverged)
    assert parse_line(to_line(diverged), Record).metrics == METRICS


def test_what_could_not_be_read_again_cannot_be_made() -> None:
    fields = dict(ok(case(), 0))
    with pytest.raises(ValidationError, match=r"samples_s\.1"):
        Record(**{**fields, "samples_s": (0.1, math.nan)})


@pytest.mark.parametrize("wrong", [{"samples_s": (0.1,)}, {"reason": None}])
def test_a_failed_record_has_a_reason_and_no_samples(wrong: dict[str, object]) -> None:
    fields = failed(case(), 0, "crashed", "why").to_json() | wrong
    with pytest.raises(RowError, match="needs a reason and has no samples_s"):
        parse_line(json.dumps(fields).encode(), Record)
