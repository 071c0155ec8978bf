import json
from io import StringIO

from rich.console import Console

from dpbench.asv.compare import AsvChange, BenchmarkPairs, Gap, Pair
from dpbench.asv.report import asv_json, asv_text
from dpbench.asv.result_file import Measured
from dpbench.stats.rounds import Estimate

BASE, HEAD = "01234567" * 5, "89abcdef" * 5
FULL = Pair(("'tuned'", "64"), Measured(0.0123), Measured(0.0246), Estimate(2.0, 1.9, 2.1), None, AsvChange.WORSE)
FAILED = Pair(("'naive'", "64"), Measured(0.5), Gap.FAILED, None, "failed in head")
EMPTY = Pair(("'ddp'", "64"), Gap.SKIPPED, Gap.ABSENT, None, "skipped in base, absent in head")
OTHER = Pair((), Measured(1234.0), Measured(2468.0), None, "the benchmark's version differs ('1' / '2')")
GONE = Pair(("1",), Measured(7.0), Gap.ABSENT, None, "absent in head")
FOUND = (
    BenchmarkPairs("shared", "step_time", (FULL, FAILED, EMPTY)),
    BenchmarkPairs("shared", "copies", (OTHER,)),
    BenchmarkPairs("shared", "nowhere", (EMPTY,)),
    BenchmarkPairs("shared", "gone", (GONE, GONE, EMPTY)),
)
UNITS = {"step_time": "seconds", "copies": "bytes"}


def drawn(found=FOUND, units=UNITS, width=100):
    console = Console(width=width, record=True, file=StringIO())
    console.print(asv_text("here", BASE, HEAD, found, units))
    return console.export_text()


def line(text, start):
    (found,) = [each.split() for each in text.splitlines() if each.strip().startswith(start)]
    return found


def test_each_benchmark_has_a_table_with_its_unit():
    text = drawn()
    assert text.startswith("base 01234567, head 89abcdef on here\n")
    assert line(text, "tuned, 64") == ["tuned,", "64", "12.3", "24.6", "2.00", "[1.90,", "2.10]", "worse"]
    assert line(text, "parameters  base, ms") == [
        "parameters",
        "base,",
        "ms",
        "head,",
        "ms",
        "ratio",
        "to",
        "base",
        "change",
    ]
    assert line(text, "parameters  base, bytes")[1:3] == ["base,", "bytes"]
    assert " 1,234 " in text


def test_what_is_worse_is_counted_and_named_at_the_end():
    assert drawn().rstrip().endswith("worse in head: 1\n  step_time('tuned', 64), shared")
    assert drawn((BenchmarkPairs("shared", "copies", (OTHER,)),)).rstrip().endswith("worse in head: nothing")


def test_a_missing_ratio_has_a_reason():
    text = drawn()
    assert line(text, "naive, 64") == ["naive,", "64", "500", "failed", "-"]
    assert text.count("no ratio: ") == 1
    assert "no ratio: the benchmark's version differs ('1' / '2')\n" in text
    assert "gone, shared: absent in head\n" in text
    assert "3 combinations of parameters were skipped in both\n" in text
    assert "nowhere" not in text
    assert "ddp" not in text


def test_without_units_numbers_are_not_scaled():
    assert line(drawn(units={}), "tuned, 64")[2:4] == ["0.0123", "0.0246"]


def test_counts_have_no_decimals():
    pair = Pair(("'tuned'",), Measured(7.0), Measured(7.5), Estimate(7.5 / 7, None, None), None)
    assert line(drawn((BenchmarkPairs("shared", "copies", (pair,)),)), "tuned") == ["tuned", "7", "7.50", "1.07"]


def test_no_line_is_longer_than_the_terminal():
    assert max(map(len, drawn(width=60).splitlines())) <= 60


def test_json_has_every_pair():
    found = json.loads(json.dumps(asv_json("here", BASE, HEAD, FOUND, UNITS), allow_nan=False))
    assert {name: found[name] for name in ("schema", "machine", "base", "head")} == {
        "schema": 2,
        "machine": "here",
        "base": BASE,
        "head": HEAD,
    }
    first, second, third, *_ = found["results"]
    assert first == {
        "environment": "shared",
        "benchmark": "step_time",
        "parameters": ["'tuned'", "64"],
        "unit": "seconds",
        "base": 0.0123,
        "head": 0.0246,
        "ratio": {"value": 2.0, "low": 1.9, "high": 2.1},
        "reason": None,
        "change": "worse",
    }
    assert (second["base"], second["head"], second["ratio"], second["reason"]) == (0.5, None, None, "failed in head")
    assert (third["base"], third["head"]) == (None, None)
    assert len(found["results"]) == 8
