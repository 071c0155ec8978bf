"""The judgement in Bencher Metric Format, as CSV and as a badge."""

import csv
import json
from io import StringIO
from xml.etree import ElementTree as ET

import pytest

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.badge import COLOURS, gate_badge
from dpbench.report.gate.bencher import gate_bencher
from dpbench.report.gate.csv_form import COLUMNS, gate_csv
from tests.report.gate.making_gate import (
    ALL_ACCEPTED,
    BROKEN,
    COUNTS,
    EVERY,
    EVIL,
    LANES,
    PASS,
    SLOWER,
    STEP,
    counter,
    drift,
    judged,
    time,
)

SVG = "{http://www.w3.org/2000/svg}"


def rows(found: Judgement) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(gate_csv(found)), strict=True))


def by_quantity(found: Judgement) -> dict[tuple[str, str], dict[str, str]]:
    return {(row["benchmark"], row["quantity"]): row for row in rows(found)}


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


def test_the_csv_has_a_row_for_the_whole_and_for_each_finding() -> None:
    found = by_quantity(SLOWER)
    assert len(found) == len(rows(SLOWER)) == 1 + 3 + 2 + 1
    assert found["", "all"]["verdict"] == "slower"
    assert found[COUNTS, "forward operators"] == {
        **dict.fromkeys(COLUMNS, ""),
        "base_commit": "0123456789" * 4,
        "head_commit": "fedcba9876" * 4,
        "tier": "0",
        "benchmark": COUNTS,
        "quantity": "forward operators",
        "base": "2000",
        "head": "2001",
        "head_over_base": "1.0005",
        "verdict": "slower",
        "why": "worse",
    }
    times = found[LANES, "step time, s"]
    assert (times["base"], times["head"], times["tolerated"]) == ("0.01", "0.01052", "0.02")
    assert (times["head_over_base"], times["low"], times["high"]) == ("1.052", "1.041", "1.063")
    assert found["drifting", "step time, s"]["head_over_base"] == str(0.023 / 0.02)
    assert found[COUNTS, "new kernels"]["base"] == ""


def test_what_is_accepted_passes_in_the_csv() -> None:
    assert {row["verdict"] for row in rows(ALL_ACCEPTED)} == {"pass"}
    assert [row["accepted"] for row in rows(ALL_ACCEPTED)[1:]] == ["until 2027-01-31: pays for B7"] * 3
    assert [row["verdict"] for row in rows(judged(drifts=(drift(),)))] == ["pass", "pass"]


@pytest.mark.parametrize("name", EVERY)
def test_every_csv_is_of_the_same_columns_and_one_line_a_row(name: str) -> None:
    text = gate_csv(EVERY[name])
    assert {tuple(row) for row in rows(EVERY[name])} == {COLUMNS}
    assert text.count("\r\n") == text.count("\n") == len(rows(EVERY[name])) + 1
    assert text.replace("\r\n", "").isprintable()


@pytest.mark.parametrize("start", "=+-@")
def test_no_text_of_the_csv_is_a_formula(start: str) -> None:
    text = f"{start}HYPERLINK(1)"
    found = judged("slower", why=text, times=(time(text, "slower", why=text),), counters=(counter(benchmark=text),))
    for row in rows(found):
        assert row["why"] in (f"'{text}", "worse")
        assert row["benchmark"] in (f"'{text}", "")


@pytest.mark.parametrize("name", EVERY)
def test_the_badge_is_an_image_of_the_verdict_that_loads_nothing(name: str) -> None:
    root = ET.fromstring(gate_badge(EVERY[name]))
    assert {element.tag for element in root.iter()} == {f"{SVG}{tag}" for tag in ("svg", "title", "rect", "text")}
    assert not any("href" in key or "url(" in value for element in root.iter() for key, value in element.items())
    assert [text.text for text in root.iter(f"{SVG}text")] == ["dpbench gate", str(EVERY[name].verdict)]
    left, right = root.iter(f"{SVG}rect")
    assert right.get("fill") == COLOURS[EVERY[name].verdict]
    assert float(root.get("width", 0)) == float(left.get("width", 0)) + float(right.get("width", 0))


def test_text_from_outside_is_escaped_in_the_badge() -> None:
    written = gate_badge(EVIL)
    assert "<script" not in written
    assert "&lt;script&gt;" in written
    (title,) = ET.fromstring(written).iter(f"{SVG}title")
    assert title.text is not None
    assert "<script>alert(1)</script>" in title.text
    assert title.text.isprintable()


def test_every_verdict_has_a_colour_of_its_own_that_white_text_can_be_read_on() -> None:
    assert set(COLOURS) == set(Verdict)
    assert len(set(COLOURS.values())) == len(Verdict)
    assert all(contrast_with_white(colour) >= 4.5 for colour in COLOURS.values())


def contrast_with_white(colour: str) -> float:
    """WCAG 2.1, relative luminance and contrast ratio."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 1.05 / (sum(w * part for w, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05)


def test_the_same_judgement_passes_in_all_three() -> None:
    assert [row["verdict"] for row in rows(PASS)] == ["pass", "pass"]
    assert list(json.loads(gate_bencher(PASS))) == [STEP]
