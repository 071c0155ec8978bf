"""The tables, the drawn intervals and the code behind worse counters, which several forms print."""

import json
import re
from math import exp, log
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dpbench.gate.judgement import Blame, Cause, TimeRatio
from dpbench.report.gate.forms import gate_json, gate_markdown, gate_text
from dpbench.report.gate.per_benchmark import gate_junit
from dpbench.report.gate.tables import (
    MOST_GROUPS,
    acceptances,
    counters_table,
    drifts_table,
    ends_of,
    interval_line,
    precision_table,
    slowest_first,
    span_of,
    times_table,
    what_changed,
    worst_first,
)
from dpbench.report.markdown import escaped
from tests.report.gate.making_gate import (
    ACCEPTED,
    HOSTILE,
    LANES,
    SLOWER,
    STEP,
    counter,
    drift,
    judged,
    ratio,
    time,
    unmeasured,
)


def texts(table):
    """Return the cells of each row."""
    return tuple(tuple(column.cell(row) for column in table.columns) for row in table.rows)


def test_a_changed_counter_has_both_values_and_whether_it_is_worse() -> None:
    grid = counters_table(SLOWER)
    assert [row[1:] for row in texts(grid)] == [
        ("forward operators", "2,000", "2,001", "worse"),
        ("new kernels", "-", "7", "differs"),
        ("copies sim:0->sim:1", "5", "4", "better"),
    ]
    assert grid.below == ()
    assert [column.header for column in grid.columns if not column.is_text] == ["base", "head"]


def test_many_counters_of_one_benchmark_hide_no_other_benchmark() -> None:
    many = [counter(1, 100 + n, benchmark="first", counter=f"counter {n}") for n in range(30)]
    grid = counters_table(judged(counters=(*many, counter(100, 101, benchmark="second"))))
    assert [row[0] for row in texts(grid)[:3]] == ["first", "second", "first"]
    assert len(grid.rows) == 20
    assert grid.below == ("... and 11 more",)


def test_worse_counters_come_first_then_by_growth_and_accepted_ones_last() -> None:
    found = [
        counter(100, 50, counter="better", is_worse=False),
        counter(1, 9, counter="accepted", accepted=ACCEPTED),
        counter(100, 900, counter="differs", is_worse=None),
        counter(1000, 1010, counter="one percent"),
        counter(None, 1, counter="new"),
        counter(0, 3, counter="from none"),
        counter(10, 11, counter="ten percent"),
    ]
    assert [change.counter for change in worst_first(found)] == (
        ["new", "from none", "ten percent", "one percent", "differs", "better", "accepted"]
    )


def test_times_share_a_unit_and_slower_ones_come_first() -> None:
    times = (time("fast", ratio=ratio(0.5)), time("accepted", "slower", accepted=ACCEPTED), time(LANES, "slower"))
    grid = times_table(judged(times=(*times, unmeasured("none"))))
    assert tuple(column.header for column in grid.columns) == (
        "benchmark",
        "base, ms",
        "head, ms",
        "change",
        "head / base",
        "verdict",
    )
    assert texts(grid) == (
        (LANES, "10.0", "10.1", "+1.0 %", "1.010 [1.000, 1.020]", "slower"),
        ("accepted", "10.0", "10.1", "+1.0 %", "1.010 [1.000, 1.020]", "slower, accepted"),
        ("none", "-", "-", "-", "-", "broken"),
        ("fast", "10.0", "10.1", "-50.0 %", "0.500 [0.490, 0.510]", "pass"),
    )


def test_the_slowest_of_a_verdict_comes_first() -> None:
    times = [time("a", "undecided"), time("b", "slower", ratio=ratio(1.1)), time("c", "slower", ratio=ratio(1.3))]
    assert [found.benchmark for found in slowest_first(times)] == ["c", "b", "a"]


def test_precision_has_the_tolerated_growth_the_detectable_growth_and_the_noise() -> None:
    grid = precision_table(judged(times=(time(), unmeasured(LANES))))
    assert texts(grid) == (
        (LANES, "2 %", "-", "-", "0, 0", "1"),
        (STEP, "2 %", "1.1 %", "1.001 [0.997, 1.005]", "24, 3", "1"),
    )


def test_drifts_have_the_commit_and_date_that_began_them() -> None:
    found = (drift(), drift(benchmark="larger", after_s=0.04, accepted=ACCEPTED))
    grid = drifts_table(judged(drifts=found))
    since = "cccccccccc,\n2026-10-01"
    assert texts(grid) == (
        ("larger", "20.0", "40.0", "+100.0 %", since, "9", "slower, accepted"),
        ("drifting", "20.0", "23.0", "+15.0 %", since, "9", "slower"),
    )


def test_rows_that_are_left_out_are_counted() -> None:
    times = tuple(time(f"step {n}") for n in range(7))
    for grid in (times_table, precision_table):
        assert len(grid(judged(times=times), 5).rows) == 5
        assert grid(judged(times=times), 5).below == ("... and 2 more",)
        assert grid(judged(times=times)).below == grid(judged(times=times), 7).below == ()
    drifts = judged(drifts=(drift(), drift()))
    assert drifts_table(drifts, 1).below == ("... and 1 more",)


def test_each_accepted_entry_is_listed_once() -> None:
    found = judged(
        counters=(counter(accepted=ACCEPTED), counter()), times=(time(accepted=ACCEPTED),), drifts=(drift(),)
    )
    assert list(acceptances(found)) == [ACCEPTED]


TENTH = 10 * log(1.01)


def line(value: float, low: float, high: float, span: float = TENTH) -> str:
    return interval_line(TimeRatio(value=value, low=low, high=high), span)


@pytest.mark.parametrize(
    ("found", "drawn"),
    [
        ((1.0, 1.0, 1.0), "┄┄┄┄┄┄┄┄┄┄●┄┄┄┄┄┄┄┄┄┄"),
        ((1.03, 0.98, 1.05), "┄┄┄┄┄┄┄┄━━┿━━●━━┄┄┄┄┄"),
        ((1.05, 1.03, 1.06), "┄┄┄┄┄┄┄┄┄┄│┄┄━━●━┄┄┄┄"),
        ((0.95, 0.93, 0.96), "┄┄┄━━●━┄┄┄│┄┄┄┄┄┄┄┄┄┄"),
        ((1.3, 1.05, 1.5), "┄┄┄┄┄┄┄┄┄┄│┄┄┄┄━━━━━►"),
        ((0.5, 0.4, 0.99), "◄━━━━━━━━━│┄┄┄┄┄┄┄┄┄┄"),
        ((1.02, 1.001, 1.04), "┄┄┄┄┄┄┄┄┄┄│━●━━┄┄┄┄┄┄"),
    ],
)
def test_the_value_its_interval_and_one_have_their_places(found, drawn):
    assert line(*found) == drawn
    assert len(drawn) == 21


@given(
    st.floats(0.01, 100),
    st.floats(0, 5),
    st.floats(0, 5),
    st.floats(0.01, 1),
)
def test_every_line_has_one_value_at_most_and_the_same_length(value, below, above, span):
    drawn = line(value, value * exp(-below), value * exp(above), span)
    assert len(drawn) == 21
    assert drawn.count("●") <= 1
    if abs(log(value)) < span:
        assert "●" in drawn or drawn[0] == "◄" or drawn[-1] == "►"


def test_a_line_shows_all_ratios_but_neither_less_than_two_percent_nor_more_than_double():
    def span(*ends):
        return exp(span_of([TimeRatio(value=1, low=1, high=end) for end in ends]))

    assert span() == pytest.approx(1.02)
    assert span(1.001) == pytest.approx(1.02)
    assert span(1.1, 1.3) == pytest.approx(1.3)
    assert span(40) == pytest.approx(2)
    assert ends_of(log(1.25)) == "0.80 … 1 … 1.25"


def test_a_ratio_of_zero_is_an_arrow():
    assert line(0.0, 0.0, 0.0) == "◄┄┄┄┄┄┄┄┄┄│┄┄┄┄┄┄┄┄┄┄"


def test_the_characters_are_no_markdown():
    assert not set("┄│━┿●◄►") & set("|`*_~<>&[]!#@:-\\")
    assert escaped("┄") != "┄"  # `escaped` would spend ten bytes on each


CAUSE = Cause(what="aten.clone", function="A.f", file="a/b.py", lines=(3, 9), text="x.clone()", base=1, head=1_201)
LINE = "+1,200 (1 -> 1,201) aten.clone, in A.f at a/b.py:3, 9: x.clone()"


def judgement(*blames):
    counters = [counter(benchmark=blame.benchmark, counter=blame.counter) for blame in blames]
    return judged("slower", counted_cases=1, counters=tuple(counters), blames=blames)


def blame(benchmark="case", name="forward.operators", cause=CAUSE, more=0):
    return Blame(benchmark=benchmark, counter=name, causes=(cause,), more=more)


def shown(found):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(gate_text(found))
    return captured.get()


def test_every_form_has_the_code():
    found = judgement(blame(more=2))
    text = shown(found)
    assert text.index("Counters that changed") < text.index("What changed") < text.index(LINE)
    assert "... and 2 more" in text
    cause = json.loads(json.dumps(gate_json(found)))["blames"][0]["causes"][0]
    assert (cause["lines"], cause["head"]) == ([3, 9], 1201)
    assert "  - " in gate_markdown(found).partition("#### What changed")[2]
    (case,) = ET.fromstring(gate_junit(found)).iter("failure")
    assert f"    {LINE}\n    ... and 2 more" in case.text


def test_the_same_causes_in_several_cases_are_one_group_and_many_groups_are_cut():
    ((heading, lines),) = what_changed(judgement(blame("one"), blame("two"), blame("three")))
    assert (heading, lines) == ("forward.operators of one and 2 more", (LINE,))
    many = what_changed(judgement(*(blame(name=f"c{i}") for i in range(MOST_GROUPS + 2))))
    assert len(many) == MOST_GROUPS + 1
    assert many[-1] == ("... and 2 more counters", ())


def test_without_a_blame_there_is_no_heading():
    found = judged("slower", counted_cases=1, counters=(counter(),))
    assert "What changed" not in shown(found) + gate_markdown(found)


def test_hostile_code_is_escaped_in_every_form():
    evil = CAUSE.model_copy(update=dict.fromkeys(("what", "function", "file", "text"), HOSTILE))
    found = judgement(blame(HOSTILE, HOSTILE, evil))
    assert "\x07" not in shown(found)
    assert not re.search(r"^\s*::|##\[", shown(found), re.MULTILINE)
    assert "<script>" not in gate_markdown(found)
    assert "@octocat" not in gate_markdown(found)
    ET.fromstring(gate_junit(found))
