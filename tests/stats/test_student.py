"""Quantiles of Student's t, held against scipy."""

import pytest
from scipy import stats

from dpbench.stats.estimate import standard_error, t95_from_table, t_quantile


@pytest.mark.parametrize("degrees", [1, 4, 100])
@pytest.mark.parametrize("probability", [0.01, 0.5, 0.9, 1 - 1e-6])
def test_quantiles_are_those_of_scipy(probability, degrees):
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), abs=1e-9)


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    # scipy.stats.t.ppf(0.975, degrees) of scipy 1.17
    [(1, 12.7062), (1.5, 6.0167), (2, 4.3027), (4, 2.7764), (5.5, 2.5019), (7, 2.3646), (12.5, 2.1692), (1e9, 1.96)],
)
def test_the_table_is_at_most_three_percent_too_large(degrees: float, quantile: float) -> None:
    assert quantile * 0.9999 <= t95_from_table(degrees) <= quantile * 1.03


def test_the_standard_error_is_that_of_the_mean() -> None:
    values = [1.0, 2.0, 4.0, 9.0]
    assert standard_error(values) == pytest.approx(stats.sem(values))
