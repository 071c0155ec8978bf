"""One verdict from the findings of all tiers."""

from datetime import date

import pytest

from dpbench.gate.judgement import Accepted, Verdict
from dpbench.gate.overall_verdict import overall_verdict
from tests.report.gate.making_gate import counter, drift, time

ENTRY = Accepted(benchmark="*", revision="0123456789", reason="it had to be", expires=date(2027, 1, 1))


def test_no_findings_pass():
    assert overall_verdict((), (), ()) == (Verdict.PASS, "nothing is slower")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (((counter(), counter(counter="x"), counter(benchmark="b")), (), ()), "3 counters are worse, of 2 cases"),
        (((), (time("a", "slower"), time("b"), time("c", "slower")), ()), "slower: a, c"),
        (((), [time(name, "slower") for name in "abcde"], ()), "slower: a, b, c and 2 more"),
        (((), (), (drift(),)), "drifted: drifting"),
        (
            ((counter(),), (time("a", "slower"), time("b", "undecided")), (drift(),)),
            "1 counter is worse, of 1 case; slower: a; drifted: drifting",
        ),
    ],
)
def test_every_regression_is_named(found, why):
    assert overall_verdict(*found) == (Verdict.SLOWER, why)


def test_undecided_if_nothing_is_slower_and_a_benchmark_is_undecided():
    assert overall_verdict((), (time("a"), time("b", "undecided")), ()) == (Verdict.UNDECIDED, "not decided: b")


def test_a_tier_0_that_counted_nothing_is_undecided_with_its_reason_and_hides_no_regression():
    gap = "tier 0 counted none of 2 cases"
    assert overall_verdict((), (time("a"),), (), gap=gap) == (Verdict.UNDECIDED, gap)
    both = overall_verdict((), (time("a", "undecided"),), (), gap=gap)
    assert both == (Verdict.UNDECIDED, f"not decided: a; {gap}")
    assert overall_verdict((counter(),), (), (), gap=gap)[0] is Verdict.SLOWER


def test_new_benchmarks_pass_and_are_named_and_claim_nothing_alone():
    named = "new, with nothing to hold it against: a, b"
    assert overall_verdict((), (time("c"),), (), new="ab") == (Verdict.PASS, f"nothing is slower; {named}")
    assert overall_verdict((), (), (), new="ab", compared=False) == (Verdict.PASS, named)
    assert overall_verdict((), (time("c", "slower"),), (), new="ab") == (Verdict.SLOWER, "slower: c")


@pytest.mark.parametrize("is_worse", [False, None])
def test_counters_that_are_not_worse_pass(is_worse):
    assert overall_verdict((counter(is_worse=is_worse),), (), ())[0] is Verdict.PASS


def test_accepted_regressions_pass_and_are_counted():
    found = (counter(accepted=ENTRY),), (time("a", "slower", accepted=ENTRY),), (drift(accepted=ENTRY),)
    assert overall_verdict(*found) == (Verdict.PASS, "nothing is slower but what is accepted (3)")
    assert overall_verdict((), (time("a", "undecided", accepted=ENTRY),), ())[0] is Verdict.PASS
    assert overall_verdict((), (*found[1], time("b", "slower")), ()) == (Verdict.SLOWER, "slower: b")
