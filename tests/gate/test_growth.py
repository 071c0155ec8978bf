"""How counters grow from n to 2n, with records made by hand."""

import pytest

from dpbench.gate.tier0.growth import doublings, growth_changes
from dpbench.results.counts import CountRecord, Counts, Phase, PhaseCounts
from dpbench.results.record import Outcome
from tests.results.making import ENVIRONMENT

DOUBLING = doublings()[0]


def records(small, large):
    return [
        CountRecord(
            case=case,
            outcome=Outcome.OK,
            counts=Counts(phases={Phase.FORWARD: PhaseCounts(operators=operators)}),
            environment=ENVIRONMENT,
        )
        for case, operators in ((DOUBLING.small, small), (DOUBLING.large, large))
    ]


@pytest.mark.parametrize(
    ("head", "is_faster"),
    [((100, 180), False), ((110, 190), False), ((101, 181), False), ((100, 189), False), ((100, 190), True)],
)
def test_a_growth_is_worse_if_it_is_more_than_5_percent_faster(head, is_faster):
    found = growth_changes(records(100, 180), records(*head))
    expected = [(f"growth with {DOUBLING.name}", "forward.operators.growth", 1800, 10 * head[1], True)]
    got = [(each.benchmark, each.counter, each.base, each.head, each.is_worse) for each in found]
    assert got == (expected if is_faster else [])


def test_a_counter_that_was_0_and_a_case_that_was_not_counted_have_no_growth():
    assert growth_changes(records(0, 5), records(0, 50)) == []
    assert growth_changes(records(100, 180), records(100, 400)[:1]) == []
