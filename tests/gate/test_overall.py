"""All findings to one verdict, and what history keeps."""

from datetime import date

import pytest

from dpbench.gate.judgement import Accepted, Verdict
from dpbench.gate.overall import history_line, overall
from tests.report.making_gate import counter, drift, judged, ratio, time, unmeasured
from tests.results.making import ENVIRONMENT

ANSWER = Accepted(benchmark="*", revision="0123456789", reason="it had to be", expires=date(2027, 1, 1))


def test_nothing_at_all_passes():
    assert overall((), (), ()) == (Verdict.PASS, "nothing is slower")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (((counter(), counter(counter="x"), counter(benchmark="b")), (), ()), "3 counters are worse, of 2 cases"),
        (((), (time("a", "slower"), time("b"), time("c", "slower")), ()), "slower: a, c"),
        (((), [time(name, "slower") for name in "abcde"], ()), "slower: a, b, c and 2 more"),
        (((), (), (drift(),)), "drifted: drifting"),
        (
            ((counter(),), (time("a", "slower"), time("b", "undecided")), (drift(),)),
            "1 counters are worse, of 1 cases; slower: a; drifted: drifting",
        ),
    ],
)
def test_whatever_is_slower_is_named(found, why):
    assert overall(*found) == (Verdict.SLOWER, why)


def test_undecided_where_nothing_is_slower():
    assert overall((), (time("a"), time("b", "undecided")), ()) == (Verdict.UNDECIDED, "not decided: b")


@pytest.mark.parametrize("is_worse", [False, None])
def test_counters_that_are_not_worse_pass(is_worse):
    assert overall((counter(is_worse=is_worse),), (), ())[0] is Verdict.PASS


def test_what_somebody_answers_for_passes_and_is_counted():
    found = (counter(accepted=ANSWER),), (time("a", "slower", accepted=ANSWER),), (drift(accepted=ANSWER),)
    assert overall(*found) == (Verdict.PASS, "nothing is slower but what is accepted (3)")
    assert overall((), (time("a", "undecided", accepted=ANSWER),), ())[0] is Verdict.PASS
    assert overall((), (*found[1], time("b", "slower")), ()) == (Verdict.SLOWER, "slower: b")


def test_history_keeps_what_was_measured():
    found = judged("slower", times=(time("a", "slower", ratio=ratio(1.2)), unmeasured("b", "undecided"), time("c")))
    line = history_line(found, {"a": "case of a", "c": "case of c"}, {"a": True}, ENVIRONMENT)
    assert (line.verdict, line.started_at, line.environment) == (Verdict.SLOWER, found.started_at, ENVIRONMENT)
    assert (line.base_commit, line.head_commit) == (found.base.commit, found.head.commit)
    a, c = line.benchmarks
    assert (a.name, a.case, a.ratio, a.rounds, a.twin_alarmed) == ("a", "case of a", 1.2, 24, True)
    assert (a.base_step_s, a.head_step_s) == (0.010, 0.0101)
    assert (c.name, c.twin_alarmed) == ("c", None)
