"""Medians of rounds, their ratios, and how they are shown."""

import random
from math import exp, hypot, log, sqrt
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbench.judge.decision import MOST_ROUNDS
from dpbench.judge.estimate import (
    Estimate,
    median_of_rounds,
    ratio_of_estimates,
    ratio_of_rounds,
    standard_error,
    t95_from_table,
    t_quantile,
)

times = st.floats(1e-6, 1e3)
rounds = st.lists(st.lists(times, min_size=1, max_size=5), min_size=1, max_size=8)


def test_a_round_counts_by_its_median_however_many_samples_it_has() -> None:
    assert median_of_rounds([[1, 2, 900], [3] * 1000, [5]]).value == pytest.approx(3)
    few, many = [[1.0], [2.0], [4.0]], [[1.0] * 50, [2.0] * 5, [4.0] * 500]
    assert median_of_rounds(few) == median_of_rounds(many)


def test_the_interval_is_students_t_on_the_logarithms() -> None:
    # Logarithms to base 2 are 0, 1, 2: mean 1, standard error 1/sqrt(3), 4.3027 for 2 degrees of freedom.
    median = median_of_rounds([[1.0], [2.0], [4.0]])
    half = 4.3027 / 3**0.5
    assert (median.value, median.low, median.high) == pytest.approx((2, 2 ** (1 - half), 2 ** (1 + half)), rel=1e-4)


def test_the_interval_of_a_ratio_is_welchs() -> None:
    # In base 2: errors 1/sqrt(3) and 0; all the uncertainty is the first one's, with its 2 degrees of freedom.
    ratio = ratio_of_rounds([[2.0], [4.0], [8.0]], [[2.0]] * 5)
    half = 4.3027 / 3**0.5
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2 ** (1 - half), 2 ** (1 + half)), rel=1e-4)
    # Equal errors of 1/sqrt(3): together sqrt(2/3), with 4 degrees of freedom.
    ratio = ratio_of_rounds([[2.0], [4.0], [8.0]], [[1.0], [2.0], [4.0]])
    half = 2.7764 * (2 / 3) ** 0.5
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2 ** (1 - half), 2 ** (1 + half)), rel=1e-4)


@pytest.mark.parametrize("many", [[[1.0, 2.0]], [[0.5]] * 4])
def test_one_round_has_no_interval(many: list[list[float]]) -> None:
    one = [[2.0, 2.0, 2.0]]
    assert median_of_rounds(one) == Estimate(pytest.approx(2.0), None, None)
    for ratio in (ratio_of_rounds(one, many), ratio_of_rounds(many, one)):
        assert (ratio.low, ratio.high) == (None, None)


def test_rounds_without_spread_have_an_interval_of_no_width() -> None:
    assert ratio_of_rounds([[1.0]] * 2, [[2.0]] * 3) == Estimate(0.5, 0.5, 0.5)


@given(rounds)
def test_the_interval_holds_the_value(rounds: list[list[float]]) -> None:
    median = median_of_rounds(rounds)
    assert (median.low is None) == (median.high is None) == (len(rounds) == 1)
    assert median.low is None or median.low <= median.value <= median.high


def test_the_interval_holds_the_value_when_slow_rounds_pull_the_mean_away() -> None:
    median = median_of_rounds([[1.0]] * 40 + [[2.0]] * 20)
    assert median.low == pytest.approx(median.value) == 1.0


@given(rounds, rounds)
def test_a_ratio_turned_round_is_its_inverse(a: list[list[float]], b: list[list[float]]) -> None:
    forth, back = ratio_of_rounds(a, b), ratio_of_rounds(b, a)
    assert forth.value == pytest.approx(1 / back.value)
    if forth.low is not None:
        assert (forth.low, forth.high) == pytest.approx((1 / back.high, 1 / back.low), rel=1e-6)


@given(rounds, rounds, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(a: list[list[float]], b: list[list[float]], factor: float) -> None:
    scaled = [[[time * factor for time in samples] for samples in case] for case in (a, b)]
    ours, theirs = ratio_of_rounds(a, b), ratio_of_rounds(*scaled)
    assert ours.value == pytest.approx(theirs.value)
    if ours.low is not None:
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-6)


@pytest.mark.parametrize("bad", [[], [[]], [[1.0], []], [[1.0, 0.0]], [[-1.0]]])
def test_what_is_no_time_is_refused(bad: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="needs a round"):
        median_of_rounds(bad)
    with pytest.raises(ValueError, match="needs a round"):
        ratio_of_rounds([[1.0]], bad)


def measured(rng: np.random.Generator, number: int, spread: float, factor: float = 1.0) -> list[list[float]]:
    """Rounds as on a shared machine: processes differ by `spread`, samples by 5 %, and one in ten is a spike."""
    levels = factor * np.exp(rng.normal(0, spread, number))
    noise = np.exp(rng.normal(0, 0.05, (number, 30))) * (1 + (rng.random((number, 30)) < 0.1))
    return (levels[:, None] * noise).tolist()


@pytest.mark.parametrize("spread", [0.05, 0.2])
@pytest.mark.parametrize("number", [3, 5])
def test_intervals_of_identical_cases_contain_one_in_nine_of_ten_or_more(number: int, spread: float) -> None:
    rng = np.random.default_rng(1)
    ratios = [ratio_of_rounds(measured(rng, number, spread), measured(rng, number, spread)) for _ in range(500)]
    covered = np.mean([one.low <= 1 <= one.high for one in ratios])
    assert 0.92 <= covered <= 0.99


def test_a_case_half_as_slow_again_is_told_from_its_reference_at_five_rounds() -> None:
    rng = np.random.default_rng(1)
    ratios = [ratio_of_rounds(measured(rng, 5, 0.1, factor=1.5), measured(rng, 5, 0.1)) for _ in range(200)]
    assert np.mean([one.low > 1 for one in ratios]) > 0.95


def test_the_half_widths_are_root_sums_of_squares_of_logarithms() -> None:
    ratio = ratio_of_estimates(Estimate(6.0, 3.0, 7.0), Estimate(2.0, 1.5, 5.0))
    assert ratio.value == 3.0
    assert ratio.low == pytest.approx(3.0 * exp(-hypot(log(6 / 3), log(5 / 2))))
    assert ratio.high == pytest.approx(3.0 * exp(hypot(log(7 / 6), log(2 / 1.5))))


@pytest.mark.parametrize("poor", [Estimate(2.0, None, None), Estimate(2.0, 0.0, 3.0), Estimate(0.0, 0.0, 3.0)])
def test_without_two_intervals_above_zero_there_is_none(poor: Estimate) -> None:
    ratio = ratio_of_estimates(poor, Estimate(1.0, 0.5, 2.0))
    assert (ratio.value, ratio.low, ratio.high) == (poor.value, None, None)


def test_a_value_outside_of_its_interval_is_inside_the_ratios() -> None:
    for value in (0.5, 100.0):
        ratio = ratio_of_estimates(Estimate(value, 1.0, 8.0), Estimate(1.0, 1.0, 1.0))
        assert ratio.low is not None
        assert ratio.high is not None
        assert ratio.low <= ratio.value <= ratio.high


def test_intervals_of_equal_means_contain_one_19_times_in_20() -> None:
    rng = random.Random(0)

    def drawn() -> Estimate:
        logs = [rng.gauss(0, 0.1) for _ in range(40)]
        half = 1.96 * stdev(logs) / sqrt(40)
        return Estimate(exp(fmean(logs)), exp(fmean(logs) - half), exp(fmean(logs) + half))

    ratios = [ratio_of_estimates(drawn(), drawn()) for _ in range(2000)]
    covered = sum((ratio.low or 0) <= 1 <= (ratio.high or 0) for ratio in ratios) / 2000
    assert 0.93 < covered < 0.97


def test_an_interval_has_the_unit_and_the_decimals_of_its_value() -> None:
    assert Estimate(0.0123456, 0.00999, 0.5).text(1e-3) == "12.3 [10.0, 500.0]"
    assert Estimate(0.0123456, None, None).text(1e-3) == "12.3"


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((1.01, 1.5), "slower"),
        ((0.5, 0.99), "faster"),
        ((0.9, 1.5), "undecided"),
        ((1.0, 1.5), "undecided"),
        ((None, None), "undecided"),
    ],
)
def test_a_ratio_is_decided_if_its_interval_lacks_one(ends: tuple[float | None, float | None], verdict: str) -> None:
    ratio = Estimate(1.2, *ends)
    assert ratio.verdict == verdict
    assert ratio.ends == ((1.2, 1.2) if ends == (None, None) else ends)


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


def test_rounds_to_decide_follow_the_square_root() -> None:
    assert Estimate(1.1, 1 / 1.1, 1.1**3).rounds_to_decide(5) == 20
    assert Estimate(1.1, 0.99, 1.12).rounds_to_decide(5) == 6
    assert Estimate(1.0, 0.9, 1.1).rounds_to_decide(5) is None
    assert Estimate(1.1, None, None).rounds_to_decide(1) is None
    assert Estimate(1.001, 0.9, 1.1).rounds_to_decide(5) is None
    assert MOST_ROUNDS == 200
