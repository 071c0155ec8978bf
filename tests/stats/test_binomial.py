import pytest
from scipy.stats import binomtest

from dpbench.stats.intervals import clopper_pearson


@pytest.mark.parametrize(("hits", "of_all"), [(0, 60), (1, 60), (7, 10), (60, 60), (3, 2000)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(hits, of_all):
    exact = binomtest(hits, of_all).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, of_all) == pytest.approx((exact.low, exact.high))
