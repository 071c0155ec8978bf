"""The tables, the drawn intervals and the code behind worse counters, which several forms print."""

import re
from xml.etree import ElementTree as ET

import pytest

from dpbench.gate.judgement import Blame, Cause
from dpbench.report.gate.changed_counters import counter_groups, worst_first
from dpbench.report.gate.forms import gate_markdown, gate_text
from dpbench.report.gate.per_benchmark import gate_junit
from dpbench.report.gate.verdict_tables import (
    moved,
    others,
    reasons,
    slowest_first,
    times_table,
)
from tests.report.gate.making_gate import (
    ACCEPTED,
    HOSTILE,
    counter,
    judged,
    ratio,
    time,
)
from tests.report.snapshots import printed


def test_worse_counters_come_first_then_by_growth_and_accepted_ones_last() -> None:
    changes = [
        counter(100, 50, counter="better", is_worse=False),
        counter(1, 9, counter="accepted", accepted=ACCEPTED),
        counter(100, 900, counter="differs", is_worse=None),
        counter(1000, 1010, counter="one percent"),
        counter(None, 1, counter="new"),
        counter(0, 3, counter="from none"),
        counter(10, 11, counter="ten percent"),
    ]
    assert [change.counter for change in worst_first(changes)] == (
        ["new", "from none", "ten percent", "one percent", "differs", "better", "accepted"]
    )


def test_the_slowest_of_a_verdict_comes_first() -> None:
    times = [time("a", "undecided"), time("b", "slower", ratio=ratio(1.1)), time("c", "slower", ratio=ratio(1.3))]
    assert [row.benchmark for row in slowest_first(times)] == ["c", "b", "a"]


def test_rows_that_are_left_out_are_counted() -> None:
    times = tuple(time(f"step {n}") for n in range(7))
    assert len(times_table(times, 5).rows) == 5
    assert times_table(times, 5).below == ("... and 2 more",)
    assert times_table(times).below == times_table(times, 7).below == ()


CAUSE = Cause(what="aten.clone", function="A.f", file="a/b.py", lines=(3, 9), text="x.clone()", base=1, head=1_201)


def judgement(*blames):
    counters = [counter(benchmark=blame.benchmark, counter=blame.counter) for blame in blames]
    return judged("slower", counted_cases=1, counters=tuple(counters), blames=blames)


def blame(benchmark="case", name="forward.operators", cause=CAUSE, more=0):
    return Blame(benchmark=benchmark, counter=name, causes=(cause,), more=more)


AT = "in A.f at a/b.py:3, 9: "
OTHER = CAUSE.model_copy(update={"what": "aten.mul", "lines": (5,), "text": "x * 1"})


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
            (Blame(benchmark="case", counter="a", causes=(CAUSE, OTHER)),),
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
                + ", ".join(f"k{n} 2,000 -> 2,001 in 1 case" for n in range(3))
                + ", and 3 more",
                "1 counter more, noted because my_step is not slower, in x: forward operators 2,000 -> 2,001",
                "1 counter accepted in x: forward operators 2,000 -> 2,001",
                "1 counter different in x: forward operators none -> 7",
            ],
        ),
    ],
)
def test_counters_are_grouped_by_the_line_of_code_and_then_by_direction(blames, changes, lines):
    gate = judgement(*blames)
    groups = counter_groups(gate.model_copy(update={"counters": (*gate.counters, *changes)}))
    assert [group.line for group in groups] == lines
    cases = "case; two" if len(blames) == 3 else "c0; c1; and 4 more"
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
    gate = judged("slower", times=(*times, *(time(name, "slower") for name in moving)))
    assert list(others(gate)) == [line]
    assert [row.benchmark for row in moved(gate)] == list(moving)


@pytest.mark.parametrize(
    ("quantity", "cell", "line"),
    [
        ("median", "+30.0 %", []),
        ("mean", "mean +30.0 %", ["a: mean +30.0 %: something costs seldom"]),
        ("later", "later steps +30.0 %", ["a: later steps +30.0 %: grows with the steps"]),
    ],
)
def test_a_row_names_the_quantity_that_decided(quantity, cell, line):
    row = time("a", "slower", **{"quantity": quantity, {"median": "ratio"}.get(quantity, quantity): ratio(1.3)})
    columns = {column.header: column.cell(row) for column in times_table([row]).columns}
    assert (columns["change"], columns["head / base"]) == (cell, "1.300 [1.290, 1.310]")
    assert list(reasons(judged("slower", times=(row,)))) == line


def test_undecided_benchmarks_with_one_reason_are_one_line():
    times = (time("a", "undecided"), time("b", "undecided"), time("c", "undecided", why="x"))
    assert list(reasons(judged("undecided", times=times))) == ["a, b: undecided: why undecided", "c: undecided: x"]


def shown(gate):
    return printed(gate_text(gate), 200)


def test_hostile_code_is_escaped_in_every_form():
    evil = CAUSE.model_copy(update=dict.fromkeys(("what", "function", "file", "text"), HOSTILE))
    hostile = judgement(blame(HOSTILE, HOSTILE, evil))
    assert "\x07" not in shown(hostile)
    assert not re.search(r"^\s*::|##\[", shown(hostile), re.MULTILINE)
    assert "<script>" not in gate_markdown(hostile)
    assert "@octocat" not in gate_markdown(hostile)
    ET.fromstring(gate_junit(hostile))
