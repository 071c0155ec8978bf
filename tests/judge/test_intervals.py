from random import Random

import numpy as np
import pytest
from scipy.stats import binomtest

from dpbench.judge.intervals import Z95, Z99, clopper_pearson, interval_of_autocorrelated_median, interval_of_median


def test_an_interval_is_of_order_statistics():
    samples = Random(0).sample(range(101), 101)
    # 50 and 1.96 sqrt(101) / 2 = 9.8 to each side, rounded outward
    assert interval_of_median(samples, Z95) == (40, 50, 60)
    assert interval_of_median(samples, Z99) == (37, 50, 63)
    assert interval_of_median((1.0, 2.0, 3.0, 4.0, 5.0, 8.0), Z95) == (1.0, 3.5, 8.0)


def autocorrelated(count, correlation, seed=0, spread=0.03):
    """Log-normal times, each correlated with the one before."""
    rng, value = Random(seed), 0.0
    for _ in range(count):
        value = correlation * value + (1 - correlation**2) ** 0.5 * rng.gauss(0, 1)
        yield float(np.exp(spread * value))


def test_the_interval_holds_its_median_and_widens_with_autocorrelation():
    low, middle, high = interval_of_autocorrelated_median(np.array(list(autocorrelated(400, 0.0))))
    assert low <= middle <= high
    wide_low, _, wide_high = interval_of_autocorrelated_median(np.array(list(autocorrelated(400, 0.9))))
    assert wide_high - wide_low > 1.5 * (high - low)


def test_the_interval_reaches_no_further_than_the_samples():
    times_s = np.array([1.0] * 30 + [2.0] * 30)
    assert interval_of_autocorrelated_median(times_s) == (1.0, 1.5, 2.0)


@pytest.mark.parametrize(("hits", "of_all"), [(0, 60), (1, 60), (7, 10), (60, 60), (3, 2000)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(hits, of_all):
    exact = binomtest(hits, of_all).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, of_all) == pytest.approx((exact.low, exact.high))
