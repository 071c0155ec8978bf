from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.measure.stopping import StopRule, WarmUp


def warm_up(times_s, max_s=1e9):
    rule, elapsed_s = WarmUp(max_s=max_s), 0.0
    for step_s in times_s:
        if rule.done:
            break
        elapsed_s += step_s
        rule.add(step_s, elapsed_s)
    return rule


def test_warm_up_ends_ten_steps_into_steady_times():
    assert warm_up([1.0] * 100).steps == 10


def test_warm_up_goes_on_while_times_fall():
    falling = [1.0 * 0.95**i for i in range(40)]
    rule = warm_up([*falling, *[falling[-1]] * 40])
    assert 40 < rule.steps <= 50


def test_warm_up_ends_at_its_budget_but_not_after_one_step():
    assert warm_up([10.0] * 100, max_s=1.0).steps == 2


def sampled(times_s, **options):
    rule, elapsed_s = StopRule(**{"max_s": 1e9, **options}), 0.0
    for step_s in times_s:
        if rule.stopped_by:
            break
        elapsed_s += step_s
        rule.add(step_s, elapsed_s)
    return rule


def test_equal_samples_stop_at_the_least_number():
    rule = sampled([1.0] * 100, min_samples=20)
    assert (rule.stopped_by, len(rule.samples_s)) == ("interval", 20)


def test_noisy_samples_go_on_to_the_budget():
    rule = sampled([1.0, 2.0] * 500, max_s=100.0)
    assert rule.stopped_by == "budget"
    assert sum(rule.samples_s) == pytest.approx(100, abs=2)


def test_one_sample_is_always_taken():
    rule = StopRule(max_s=0.0)
    assert rule.stopped_by is None
    rule.add(5.0, 5.0)
    assert rule.stopped_by == "budget"


def test_samples_keep_their_order():
    assert sampled([3.0, 1.0, 2.0]).samples_s == [3.0, 1.0, 2.0]


@given(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=60))
def test_a_wider_allowance_never_needs_more_samples(times_s):
    counts = [len(sampled(times_s, width=width).samples_s) for width in (0.001, 0.01, 0.1, 1.0)]
    assert all(more >= fewer for more, fewer in pairwise(counts))
