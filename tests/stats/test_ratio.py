import random
from math import exp, hypot, log, sqrt
from statistics import fmean, stdev

import pytest

from dpbench.stats.rounds import Estimate, ratio_of_estimates


def test_the_half_widths_are_root_sums_of_squares_of_logarithms() -> None:
    found = ratio_of_estimates(Estimate(6.0, 3.0, 7.0), Estimate(2.0, 1.5, 5.0))
    assert found.value == 3.0
    assert found.low == pytest.approx(3.0 * exp(-hypot(log(6 / 3), log(5 / 2))))
    assert found.high == pytest.approx(3.0 * exp(hypot(log(7 / 6), log(2 / 1.5))))


@pytest.mark.parametrize("poor", [Estimate(2.0, None, None), Estimate(2.0, 0.0, 3.0), Estimate(0.0, 0.0, 3.0)])
def test_without_two_intervals_above_zero_there_is_none(poor: Estimate) -> None:
    found = ratio_of_estimates(poor, Estimate(1.0, 0.5, 2.0))
    assert (found.value, found.low, found.high) == (poor.value, None, None)


def test_a_value_outside_of_its_interval_is_inside_the_ratios() -> None:
    for value in (0.5, 100.0):
        found = ratio_of_estimates(Estimate(value, 1.0, 8.0), Estimate(1.0, 1.0, 1.0))
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value <= found.high


def test_intervals_of_equal_means_contain_one_19_times_in_20() -> None:
    rng = random.Random(0)

    def drawn() -> Estimate:
        logs = [rng.gauss(0, 0.1) for _ in range(40)]
        half = 1.96 * stdev(logs) / sqrt(40)
        return Estimate(exp(fmean(logs)), exp(fmean(logs) - half), exp(fmean(logs) + half))

    found = [ratio_of_estimates(drawn(), drawn()) for _ in range(2000)]
    covered = sum((each.low or 0) <= 1 <= (each.high or 0) for each in found) / 2000
    assert 0.93 < covered < 0.97
