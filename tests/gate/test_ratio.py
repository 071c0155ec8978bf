"""From rounds to ratios, compared with scipy.stats."""

from math import exp, log
from random import Random

import pytest
from pydantic import ValidationError
from scipy import stats

from dpbench.gate.rounds import RoundRatio, ratio_of
from dpbench.gate.time_verdict import estimate
from tests.gate.making_rounds import lockstep_round


def test_head_is_compared_with_base_and_twin_and_the_twin_with_base():
    found = ratio_of(lockstep_round(base=[[1.0]], twin=[[1.21]], head=[[1.32]]))
    assert found.contrast == pytest.approx(log(1.2))
    assert found.twin == pytest.approx(log(1.21))
    assert found.base_s == pytest.approx(1.1)
    assert found.head_s == pytest.approx(1.32)
    assert found.cores == "0"


def test_a_block_counts_by_its_mean_and_a_round_by_the_median_of_its_blocks():
    head = [[1.0, 1.0, 4.0], [2.0, 2.0, 2.0], [50.0, 0.1, 0.1]]
    found = ratio_of(lockstep_round(base=[[1.0]] * 3, twin=[[1.0], [9.0], [1.0]], head=head))
    assert found.contrast == pytest.approx(log(2))
    assert found.head_s == pytest.approx(2)
    assert found.twin == 0


def test_a_drift_within_a_round_cancels_because_neighbours_are_compared():
    """The ratio of the medians of each side would be 20/12."""
    slowness, growth = (1.0, 2.0, 4.0), (1.1, 1.0, 1.05)
    base, head = [[s] for s in slowness], [[s * g] for s, g in zip(slowness, growth, strict=True)]
    found = ratio_of(lockstep_round(base=base, twin=[[3.0 * s] for s in slowness], head=head))
    assert found.contrast == pytest.approx(log(1.05) - log(3) / 2)
    assert found.twin == pytest.approx(log(3))


def test_the_mean_sees_a_block_that_the_median_does_not():
    """One step of head in 16 takes 17 times as long, so the mean doubles."""
    found = ratio_of(lockstep_round(base=[[1.0]] * 16, twin=[[1.0]] * 16, head=[[1.0]] * 15 + [[17.0]]))
    assert found.contrast == 0
    assert found.mean.head == pytest.approx(log(2))
    assert found.mean.twin == 0


def test_the_late_growth_is_that_of_heads_last_quarter_beside_base():
    slowness = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    growing = [s * g for s, g in zip(slowness, [1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.2, 1.2], strict=True)]
    found = ratio_of(lockstep_round(*([[s] for s in side] for side in (slowness, slowness, growing))))
    assert found.later.head == pytest.approx(log(1.2))
    assert found.later.twin == 0
    few = ratio_of(lockstep_round(*([[s] for s in side[:7]] for side in (slowness, slowness, growing))))
    assert (few.mean, few.later) == (None, None)


@pytest.mark.parametrize("count", [2, 5, 28])
def test_the_interval_is_that_of_students_t(count):
    rng = Random(count)
    logs = [rng.gauss(0.02, 0.01) for _ in range(count)]
    found = estimate(logs)
    for risk in (0.2, 0.025, 0.0001):
        interval = stats.ttest_1samp(logs, 0.0).confidence_interval(1 - 2 * risk)
        assert (found.low(risk), found.high(risk)) == pytest.approx((interval.low, interval.high))
    shown, interval = found.as_ratio(), stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    assert (shown.value, shown.low, shown.high) == pytest.approx((exp(sum(logs) / count), *map(exp, interval)))


def test_nan_is_refused():
    valid = {"contrast": 0.0, "twin": 0.0, "base_s": 1.0, "head_s": 1.0, "cores": "0"}
    assert RoundRatio(**valid).cores == "0"
    for field in ("contrast", "twin", "base_s", "head_s"):
        with pytest.raises(ValidationError, match=field):
            RoundRatio(**{**valid, field: float("nan")})
