"""The ladder as a table and as JSON."""

from io import StringIO

import pytest
from rich.console import Console

from dpbench.report.comparison import comparisons_json, comparisons_text
from dpbench.results.compare import compare
from tests.report.test_ladder import TWO_MACHINES, on
from tests.results.making import METRICS, case, failed, ok


def printed(records, width=200):
    console = Console(width=width, file=StringIO())
    console.print(comparisons_text(compare(records), with_details=True))
    text = console.file.getvalue()
    return text[text.index("ladder: ") :] if "ladder: " in text else ""


def ranked():
    metrics = METRICS.model_copy(update={"skew_s": (0.004,), "rank_lag_s": (0.0, 0.001, 0.004, 0.002)})
    return [*TWO_MACHINES[:2], TWO_MACHINES[2].model_copy(update={"metrics": metrics})]


def test_one_table_has_machine_0_and_all_machines():
    lines = [line.split() for line in printed(ranked()).splitlines()]
    assert " ".join(lines[0]) == "ladder: mlp/tiny, batch 64, train, float32, random data"
    rows = {line[0]: line[1:] for line in lines if line and line[0] in ("single", "tuned", "ddp")}
    assert rows["single"] == ["cpu", "1", "1", "1,600", "100", "-", "-"]
    assert rows["tuned"] == ["cpu*2", "1", "1", "1,280", "80.0", "-", "-"]
    assert rows["ddp"] == ["cpu*2", "2", "2", "2,560", "80.0", "4.00", "3.00"]


def test_columns_without_a_number_are_left_out_and_a_failed_rung_has_its_outcome():
    text = printed([*TWO_MACHINES, failed(on("fsdp", "cpu*4", machines=2), 0, "time_out", "late")])
    assert "skew," not in text.partition("ladder: lanes are")[0]
    assert "limit" not in text.partition("ladder: lanes are")[0]
    assert "time out" in text
    assert "as above" not in text
    assert "lanes that share one count once" in " ".join(text.split())


def test_one_process_on_one_device_list_has_no_ladder():
    assert printed([ok(case("tuned"), 0, [0.1]), ok(case("single", "cpu"), 0, [0.1])]) == ""


def test_one_machine_has_no_column_of_machines_and_fits_into_80_columns():
    records = [ok(on("single", "cpu"), 0, [0.04]), *(ok(on(variant), 0, [0.05]) for variant in ("tuned", "ddp"))]
    text = printed(records, 80).partition("ladder: lanes are")[0]
    assert "machines" not in text
    assert "more columns" not in text


def test_json_names_the_cases_by_id():
    found = comparisons_json(compare(ranked()))
    (ladder,) = found["ladders"]
    assert ladder["one_device"] == "single|mlp/tiny|b64|cpu|train|float32|random|t2|s0"
    assert (ladder["workload"], ladder["batch"], ladder["threads"]) == ("mlp/tiny", 64, 2)
    assert {rung["id"] for rung in ladder["rungs"]} == {one["id"] for one in found["cases"]}
    assert ladder["rungs"][2] == {
        "id": "ddp|mlp/tiny|b64|cpu*4|train|float32|random|t2|s0|m2",
        "variant": "ddp",
        "outcome": "ok",
        "machines": 2,
        "lanes": 4,
        "devices": 2,
        "items_per_s": pytest.approx(2560),
        "scaling_efficiency_percent": pytest.approx(80),
        "percent_of_limit": None,
        "rank_skew_s": pytest.approx(0.004),
        "machine_skew_s": pytest.approx(0.003),
    }
