import json
import math

import pytest

from dpbench.results.line import LineError, parse_line, to_line
from dpbench.results.record import SCHEMA, Record
from tests.results.making import METRICS, case, failed, ok


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


def test_a_loss_that_is_no_number_becomes_null() -> None:
    diverged = ok(case(), 0).model_copy(update={"metrics": METRICS.model_copy(update={"loss_last": math.nan})})
    assert b"NaN" not in to_line(diverged)
    assert parse_line(to_line(diverged)).metrics == METRICS


def test_what_could_not_be_read_again_is_not_made_a_line() -> None:
    with pytest.raises(LineError, match=r"samples_s\.1"):
        to_line(ok(case(), 0).model_copy(update={"samples_s": (0.1, math.nan)}))


def test_a_newer_schema_is_refused_with_both_numbers() -> None:
    fields = {"schema": SCHEMA + 1, "something": "new"}
    with pytest.raises(LineError) as caught:
        parse_line(json.dumps(fields).encode())
    assert str(caught.value) == f"has schema {SCHEMA + 1}, newer than this dpbench knows; allowed: 1 to {SCHEMA}"


@pytest.mark.parametrize("schema", [0, -1, True, "1", 1.0, None])
def test_other_schemas_are_refused(schema: object) -> None:
    with pytest.raises(LineError, match="has no schema number; allowed: 1"):
        parse_line(json.dumps({**ok(case(), 0).to_json(), "schema": schema}).encode())


@pytest.mark.parametrize("line", [b"", b"\n", b"{", b"\xff", b"[" * 5000, b'{"schema": NaN}', b"__import__('os')"])
def test_what_is_not_json_is_refused(line: bytes) -> None:
    with pytest.raises(LineError, match="is not JSON"):
        parse_line(line)


@pytest.mark.parametrize("value", [1, "text", [], None])
def test_other_json_is_refused(value: object) -> None:
    with pytest.raises(LineError, match="has no schema number"):
        parse_line(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": -1}, "is no record: round: "),
        ({"case": {"variant": "best"}}, "is no record: case.variant: "),
        ({"case": 3}, "is no record: case: "),
        ({"extra": 1}, "is no record: extra: "),
        ({"samples_s": []}, "outcome ok needs samples_s"),
        ({"samples_s": [0.1, 0]}, "is no record: samples_s.1: "),
    ],
)
def test_wrong_fields_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(LineError, match=message) as caught:
        parse_line(json.dumps({**ok(case(), 0).to_json(), **change}).encode())
    assert "\n" not in str(caught.value)
