import random
from math import exp, hypot, log

import pytest

from dpbench.asv.result_file import Measured
from dpbench.asv.samples import ratio_of_medians

SIX = (1.0, 2.0, 3.0, 4.0, 5.0, 8.0)


def measured(scale=1.0, samples=SIX, result=3.5):
    return Measured(result * scale, None, tuple(sample * scale for sample in samples))


def test_the_ends_of_a_ratio_combine_those_of_both():
    found = ratio_of_medians(measured(2.0, result=3.0), measured(result=4.0))
    assert found.value == 1.5
    assert found.low == pytest.approx(1.5 * exp(-hypot(log(3.0 / 1.0), log(8.0 / 4.0))))
    assert found.high == pytest.approx(1.5 * exp(hypot(log(8.0 / 3.0), log(4.0 / 1.0))))


def test_equal_benchmarks_have_intervals_that_hold_one():
    rng = random.Random(0)

    def drawn():
        samples = sorted(rng.lognormvariate(0, 0.1) for _ in range(41))
        return Measured(samples[20], None, tuple(samples))

    found = [ratio_of_medians(drawn(), drawn()) for _ in range(400)]
    assert 0.95 < sum(each.low <= 1 <= each.high for each in found) / 400 < 1
    assert all(each.low <= each.value <= each.high for each in found)


def test_an_interval_holds_the_ratio_even_where_the_samples_median_is_not_the_result():
    """The result of an exported record is the median over rounds, its samples are of all rounds."""
    for result in (0.5, 100.0):
        ratio = ratio_of_medians(measured(result=result), measured())
        assert ratio.low <= ratio.value <= ratio.high
        assert ratio.value == result / 3.5


@pytest.mark.parametrize(
    "poor",
    [Measured(3.5), measured(samples=SIX[:5]), measured(samples=(0.0, *SIX)), measured(result=0.0)],
    ids=["no samples", "few", "a sample of 0", "a result of 0"],
)
def test_without_enough_above_zero_there_is_no_interval(poor):
    found = ratio_of_medians(poor, measured())
    assert (found.value, found.low, found.high) == (poor.result / 3.5, None, None)
    if poor.result:
        assert ratio_of_medians(measured(), poor).low is None
