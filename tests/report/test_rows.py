"""Records as rows: values with units in the names, inert in a spreadsheet, readable by pandas' and asv's users."""

import csv
import io
import json
import sys

import pytest

from dpbench.errors import WrongInputError
from dpbench.report.rows import Format, RowKind, rows_of, to_bytes
from tests.records.making import ENVIRONMENT, case, failed, thin

RECORDS = [
    thin(case("tuned"), 0, (0.1, 0.3, 0.2)),
    thin(case("naive"), 0, (0.5,)),
    thin(case("tuned"), 1, (0.4,)),
    failed(case("mine:wrap[chunks=4]"), 0, "crashed", "=HYPERLINK(1)"),
]


def read(rows):
    return list(csv.DictReader(io.StringIO(to_bytes(rows, Format.CSV).decode())))


def test_a_row_is_a_case_over_its_rounds():
    tuned, naive, own = rows_of(RECORDS, RowKind.CASES)
    assert (tuned["variant"], tuned["rounds"], tuned["samples"], tuned["outcome"]) == ("tuned", 2, 4, "ok")
    assert tuned["step_time_s"] == pytest.approx(0.08**0.5)  # the middle of 0.2 and 0.4, of logarithms
    assert tuned["throughput_items_per_s"] == pytest.approx(tuned["batch_items"] / 0.08**0.5)
    assert (naive["step_time_s"], naive["step_time_low_s"]) == (0.5, None)  # one round has no interval
    assert (own["variant"], own["outcome"], own["step_time_s"]) == ("mine:wrap[chunks=4]", "crashed", None)


def test_a_failed_rows_machine_is_that_of_its_run():
    environment = ENVIRONMENT.model_copy(update={"hostname": "box", "commit": "abc", "gpus": ("H100",)})
    bare = RECORDS[-1].model_copy(update={"environment": None})
    records = [thin(case("tuned"), 0, (0.1,), environment=environment), bare]
    measured, failed_row = rows_of(records, RowKind.CASES)
    assert measured["gpus"] == "H100"
    assert (failed_row["hostname"], failed_row["torch"], failed_row["commit"]) == ("box", environment.torch, "abc")
    assert not failed_row["gpus"]
    other = bare.model_copy(update={"run": "another"})
    assert rows_of([records[0], other], RowKind.CASES)[1]["hostname"] is None


def test_a_row_is_a_sample():
    rows = rows_of(RECORDS, RowKind.SAMPLES)
    assert [(row["variant"], row["round"], row["sample"], row["step_time_s"]) for row in rows] == [
        ("tuned", 0, 0, 0.1), ("tuned", 0, 1, 0.3), ("tuned", 0, 2, 0.2), ("naive", 0, 0, 0.5), ("tuned", 1, 0, 0.4)
    ]  # fmt: skip


def test_csv_gives_the_same_values_back_and_no_formula():
    rows = rows_of(RECORDS, RowKind.CASES)
    read_back = read(rows)
    assert [float(row["step_time_s"]) for row in read_back[:2]] == [row["step_time_s"] for row in rows[:2]]
    assert read_back[2]["reason"] == "'=HYPERLINK(1)"
    texts = ["=1", "+1", "-1", "@a", "\t=1", "\r=1", " =1", "a\n=1,"]
    cells = [row["a"] for row in read([{"a": text} for text in texts])]
    assert [text[0] for text in cells[:-1]] == ["'"] * 7
    assert cells[-1].startswith("a")
    assert read([{"a": -1.5}]) == [{"a": "-1.5"}]
    assert to_bytes([], Format.CSV) == b""


def test_github_action_benchmark_gets_what_has_a_time():
    entries = json.loads(to_bytes(rows_of(RECORDS, RowKind.CASES), Format.ACTION))
    assert [entry["name"].split()[0] for entry in entries] == ["tuned", "naive"]
    assert {(entry["unit"], type(entry["value"])) for entry in entries} == {("s", float)}
    assert " to " in entries[0]["range"]
    assert "range" not in entries[1]


def test_parquet_needs_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WrongInputError, match=r"'parquet' needs pyarrow.*allowed: csv, or pip install"):
        to_bytes(rows_of(RECORDS, RowKind.CASES), Format.PARQUET)
