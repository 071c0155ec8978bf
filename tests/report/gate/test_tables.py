"""The tables, the drawn intervals and the code behind worse counters, which several forms print."""

import re
from math import exp, log
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dpbench.gate.judgement import Blame, Cause, TimeRatio
from dpbench.report.gate.counters import counter_groups, worst_first
from dpbench.report.gate.forms import gate_markdown, gate_text
from dpbench.report.gate.per_benchmark import gate_junit
from dpbench.report.gate.tables import (
    ends_of,
    interval_line,
    moved,
    others,
    precision_table,
    reasons,
    slowest_first,
    span_of,
    times_table,
)
from dpbench.report.markdown import escaped
from tests.report.gate.making_gate import (
    ACCEPTED,
    HOSTILE,
    counter,
    judged,
    ratio,
    time,
    unmeasured,
)


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


def test_the_slowest_of_a_verdict_comes_first() -> None:
    times = [time("a", "undecided"), time("b", "slower", ratio=ratio(1.1)), time("c", "slower", ratio=ratio(1.3))]
    assert [found.benchmark for found in slowest_first(times)] == ["c", "b", "a"]


def test_rows_that_are_left_out_are_counted() -> None:
    times = tuple(time(f"step {n}") for n in range(7))
    for grid in (times_table, precision_table):
        assert len(grid(times, 5).rows) == 5
        assert grid(times, 5).below == ("... and 2 more",)
        assert grid(times).below == grid(times, 7).below == ()


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
    assert escaped("┄│━┿●◄►") == "┄│━┿●◄►"


CAUSE = Cause(what="aten.clone", function="A.f", file="a/b.py", lines=(3, 9), text="x.clone()", base=1, head=1_201)


def judgement(*blames):
    counters = [counter(benchmark=blame.benchmark, counter=blame.counter) for blame in blames]
    return judged("slower", counted_cases=1, counters=tuple(counters), blames=blames)


def blame(benchmark="case", name="forward.operators", cause=CAUSE, more=0):
    return Blame(benchmark=benchmark, counter=name, causes=(cause,), more=more)


AT = "in A.f at a/b.py:3, 9: "
OTHER = CAUSE.model_copy(update={"what": "aten.mul", "lines": (5,), "text": "x * 1"})
SHRUNK = CAUSE.model_copy(update={"lines": (7,), "head": 0})


@pytest.mark.parametrize(
    ("blames", "changes", "lines"),
    [
        ((blame(),), (), [f"{AT}1 counter worse in case: forward.operators 2,000 -> 2,001"]),
        (
            (blame(), blame("two"), blame("two", "forward.kernels")),
            (),
            [
                f"{AT}3 counters worse in 2 cases: "
                "forward.operators 2,000 -> 2,001, forward.kernels 2,000 -> 2,001 in 1 case"
            ],
        ),
        (
            (Blame(benchmark="case", counter="a", causes=(CAUSE, OTHER, SHRUNK)),),
            (counter(benchmark="x", counter="b"), counter(2, 1, benchmark="x", counter="c", is_worse=False)),
            [
                f"{AT}1 counter worse in case: a 2,000 -> 2,001",
                "in A.f at a/b.py:5: 1 counter worse in case: a 2,000 -> 2,001",
                "1 other counter worse in x: b 2,000 -> 2,001",
                "1 counter better in x: c 2 -> 1",
            ],
        ),
        (
            (),
            (
                *(counter(benchmark=f"c{n}", counter=f"k{n}") for n in range(6)),
                counter(benchmark="x", accepted=ACCEPTED),
                counter(None, 7, benchmark="x", is_worse=None),
                counter(benchmark="x", traded_for="my_step"),
            ),
            [
                "6 counters worse in 6 cases: "
                + ", ".join(f"k{n} 2,000 -> 2,001 in 1 case" for n in range(4))
                + ", and 2 more",
                "1 counter traded for the time of my_step in x: forward operators 2,000 -> 2,001",
                "1 counter accepted in x: forward operators 2,000 -> 2,001",
                "1 counter different in x: forward operators none -> 7",
            ],
        ),
    ],
)
def test_counters_are_grouped_by_the_line_of_code_and_then_by_direction(blames, changes, lines):
    found = judgement(*blames)
    groups = counter_groups(found.model_copy(update={"counters": (*found.counters, *changes)}))
    assert [group.line for group in groups] == lines
    cases = "case; two" if len(blames) == 3 else "c0; c1; c2; c3; and 2 more"
    code = ["aten.clone: x.clone()"] if blames else []
    assert list(groups[0].details) == code + ([f"cases: {cases}"] if " cases:" in lines[0] else [])


@pytest.mark.parametrize(
    ("passing", "moving", "line"),
    [
        ("abcdef", "g", "6 other benchmarks passed: ratio 0.990 to 1.040"),
        ("abcd", "", "4 benchmarks passed: ratio 0.990 to 1.020"),
        ("a", "g", "a passed: ratio 0.990"),
        ("ab", "", "a, b passed: ratio 0.990 to 1.000"),
    ],
)
def test_benchmarks_that_did_not_move_are_one_line(passing, moving, line):
    times = [time(name, ratio=ratio(0.99 + 0.01 * place)) for place, name in enumerate(passing)]
    found = judged("slower", times=(*times, *(time(name, "slower") for name in moving)))
    assert list(others(found)) == [line]
    assert [each.benchmark for each in moved(found)] == list(moving)


def test_a_benchmark_that_was_never_measured_passes_without_a_ratio():
    assert list(others(judged(times=(unmeasured("a", "pass"),)))) == ["a passed: nothing measured"]


@pytest.mark.parametrize(
    ("quantity", "cell", "line"),
    [
        ("median", "+30.0 %", []),
        ("mean", "mean +30.0 %", ["a: mean +30.0 %: something costs seldom"]),
        ("later", "later steps +30.0 %", ["a: later steps +30.0 %: grows with the steps"]),
    ],
)
def test_a_row_names_the_quantity_that_decided(quantity, cell, line):
    found = time("a", "slower", **{"quantity": quantity, {"median": "ratio"}.get(quantity, quantity): ratio(1.3)})
    columns = {column.header: column.cell(found) for column in times_table([found]).columns}
    assert (columns["change"], columns["head / base"]) == (cell, "1.300 [1.290, 1.310]")
    assert list(reasons(judged("slower", times=(found,)))) == line


def test_undecided_benchmarks_with_one_reason_are_one_line():
    times = (time("a", "undecided"), time("b", "undecided"), time("c", "undecided", why="x"))
    assert list(reasons(judged("undecided", times=times))) == ["a, b: undecided: why undecided", "c: undecided: x"]


def shown(found):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(gate_text(found))
    return captured.get()


def test_hostile_code_is_escaped_in_every_form():
    evil = CAUSE.model_copy(update=dict.fromkeys(("what", "function", "file", "text"), HOSTILE))
    found = judgement(blame(HOSTILE, HOSTILE, evil))
    assert "\x07" not in shown(found)
    assert not re.search(r"^\s*::|##\[", shown(found), re.MULTILINE)
    assert "<script>" not in gate_markdown(found)
    assert "@octocat" not in gate_markdown(found)
    ET.fromstring(gate_junit(found))
