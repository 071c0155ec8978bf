from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.measure.stopping import NotSettledError, StopRule, WarmUp


def warm_up(times_s, max_s=1e9, **options):
    rule, elapsed_s = WarmUp(max_s=max_s, **options), 0.0
    for step_s in times_s:
        if rule.done:
            break
        elapsed_s += step_s
        rule.add(step_s, elapsed_s)
    return rule


def scripted(*answers):
    """The trials that a scheme has left after each step; the last answer repeats."""
    left = iter(answers)
    return lambda: next(left, answers[-1])


def test_warm_up_ends_when_times_are_steady():
    assert warm_up([1.0] * 100).steps == 10


def test_warm_up_goes_on_while_times_fall():
    falling = [1.0 * 0.95**i for i in range(40)]
    rule = warm_up([*falling, *[falling[-1]] * 40])
    assert 40 < rule.steps <= 50


def test_warm_up_ends_at_its_budget_but_not_after_one_step():
    assert warm_up([10.0] * 100, max_s=1.0).steps == 2


@pytest.mark.parametrize("max_s", [0.0, 1e9])
def test_no_budget_ends_warm_up_before_the_scheme_is_settled(max_s):
    """Trials look steady: each way of dispatch takes about as long."""
    assert warm_up([1.0] * 100, max_s, trials_left=scripted(*range(30, -1, -1))).steps == 31


def test_a_scheme_that_tries_again_is_waited_for():
    rule = warm_up([1.0] * 100, 0.0, trials_left=scripted(1, 0, 4, 3, 2, 1, 0), settled_s=3.0)
    assert rule.steps == 10


def test_a_wrapper_that_does_not_report_gets_16_steps():
    assert warm_up([0.001] * 100, 0.0, trials_left=lambda: None).steps == 16


def test_an_accelerator_warms_up_for_half_a_second_after_it_is_settled():
    assert warm_up([0.01] * 200, 0.0, trials_left=scripted(*range(11, -1, -1)), settled_s=0.5).steps == 62


def test_a_scheme_that_never_settles_fails_after_a_minute_and_twice_its_trials():
    with pytest.raises(NotSettledError, match="not settled after 60 steps and 60 s: it reports 1 more") as caught:
        warm_up([1.0] * 100, trials_left=lambda: 1)
    assert "at first it reported 2" in str(caught.value)
    slow = WarmUp(max_s=0.0, trials_left=scripted(39, 1))
    for step in range(1, 80):
        slow.add(10.0, 10.0 * step)
    with pytest.raises(NotSettledError, match="after 80 steps and 800 s"):
        slow.add(10.0, 800.0)


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


@pytest.mark.parametrize(
    ("step_s", "least_s", "count"),
    [(0.01, 1.0, 100), (0.1, 1.0, 20), (0.3, 1.0, 5), (0.01, 2.0, 200), (0.3, 2.0, 7), (4.0, 1.0, 5), (9.0, 1.0, 4)],
)
def test_no_budget_ends_sampling_before_the_least_samples(step_s, least_s, count):
    """Twenty samples and a second, two on accelerators; five of over 0.2 s. A half minute ends all."""
    assert len(sampled([step_s] * 1000, max_s=0.0, least_s=least_s, width=-1.0).samples_s) == count
    assert len(sampled([step_s] * 1000, least_s=least_s, min_samples=1).samples_s) >= count


def test_stalls_of_the_machine_are_no_long_samples():
    assert len(sampled([0.5, 0.02] * 100, max_s=0.0).samples_s) == 20


def test_samples_keep_their_order():
    assert sampled([3.0, 1.0, 2.0]).samples_s == [3.0, 1.0, 2.0]


def alike(count, correlation, seed=0, spread=0.03):
    """Yield log-normal times, each correlated with the one before."""
    rng, value = Random(seed), 0.0
    for _ in range(count):
        value = correlation * value + (1 - correlation**2) ** 0.5 * rng.gauss(0, 1)
        yield float(np.exp(spread * value))


def test_independent_samples_need_as_many_as_theory_says():
    """They need 216 samples for sd 3 % and width 1 %.

    A normal median's interval is 2 * 1.96 * 1.25 * sd / sqrt(n) wide.
    """
    counts = [len(sampled(alike(5000, 0.0, seed)).samples_s) for seed in range(20)]
    assert 216 < np.median(counts) < 2 * 216


def test_correlated_samples_do_not_count_as_independent():
    """With a correlation of 0.95, 39 samples are worth one. As independent samples they would stop at about 200."""
    counts = [len(sampled(alike(3000, 0.95, seed)).samples_s) for seed in range(20)]
    assert np.median(counts) == 3000


@pytest.mark.parametrize("per_sample", [0.0004, -0.0004])
def test_a_smooth_drift_ends_with_the_budget(per_sample):
    """The drift is 2 % over the first 50 samples. The plain interval, their middle third, is narrower than 1 %."""
    assert sampled([1 + per_sample * i for i in range(1000)], max_s=700).stopped_by == "budget"


def test_two_states_of_the_machine_give_no_narrow_interval():
    """Every second stretch is 20 % slower. The plain interval of the median would hold one state only."""
    stretches = [1.0] * 75 + [1.2] * 85
    rule = sampled([t * (1 + 0.001 * (i % 3)) for i, t in enumerate(stretches * 3)], min_samples=160)
    assert len(rule.samples_s) == 480


@given(st.lists(st.floats(0.5, 2.0), min_size=20, max_size=60))
def test_a_wider_allowance_never_needs_more_samples(times_s):
    counts = [len(sampled(times_s, width=width).samples_s) for width in (0.001, 0.01, 0.1, 1.0)]
    assert all(more >= fewer for more, fewer in pairwise(counts))
