"""asv's tables without what a machine cannot measure, without running asv."""

from math import nan

from asv import results

from benchmarks.asv_output import without_skipped


def table(*values):
    """Two variants on 2 and 4 lanes."""
    params, names = [["'a'", "'b'"], ["2", "4"]], ["variant", "lanes"]
    benchmark = {"params": params, "param_names": names, "unit": "count", "name": "b"}
    return "\n".join(without_skipped(results._format_benchmark_result)([(value, None) for value in values], benchmark))


def test_values_that_cannot_be_measured_are_one_line():
    text = table(7, nan, nan, nan)
    assert "7" in text
    assert "n/a" not in text
    assert " b " not in text
    assert text.endswith("3 of 4 combinations cannot be measured here")
    assert table(nan, nan, nan, nan) == "4 of 4 combinations cannot be measured here"


def test_failures_and_holes_stay():
    assert "failed" in table(None, nan, nan, nan)
    assert table(7, nan, nan, 8).count("n/a") == 2
    assert "cannot be measured" not in table(7, nan, nan, 8)
