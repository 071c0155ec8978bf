"""Intervals of a median, from order statistics, and of a share that was counted.

The ends of a median's interval are two samples, equally far from the middle of the sorted ones. For `n` independent
samples and 95 % the distance is `1.96 * sqrt(n) / 2` ranks.

Steps of one process are like their neighbours, and then the plain interval is too narrow. So each sample is replaced by
its sign, above the median or not, and the samples are cut into ten batches of neighbours. The variance of the batches'
means, times the batch size, is 1/4 if samples are independent, and grows with the autocorrelation.

`dpbench.measure.stopping` has a table of how many such intervals contain the true median.
"""

from collections.abc import Sequence
from math import ceil, floor, sqrt
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Z95 = 1.959964
Z99 = 2.575829
"""The normal distribution has 95 % of its values within `Z95` standard deviations, and 99 % within `Z99`."""
_BATCHES = 10
LEAST_AUTOCORRELATED = 2 * _BATCHES
"""The samples that `interval_of_autocorrelated_median` needs."""
_T95 = 2.2622  # Student's t at 97.5 % for 9 degrees of freedom
_INDEPENDENT = 0.25  # the variance of a fair coin


class MedianInterval(NamedTuple):
    low: float
    median: float
    high: float


def interval_of_median(samples: Sequence[float], z: float = Z95) -> MedianInterval:
    """For independent samples. Even the ends of fewer than six contain the median less than 95 times in 100."""
    ordered = sorted(samples)
    low, high = _ranks(len(ordered), z * sqrt(len(ordered)) / 2)
    return MedianInterval(ordered[low], median(ordered), ordered[high])


def interval_of_autocorrelated_median(samples: NDArray[np.float64]) -> MedianInterval:
    """At 95 %, from 20 samples or more in their order in time: shape (n,)."""
    n = len(samples)
    middle = float(np.median(samples))
    batch = n // _BATCHES
    signs = (samples[n - batch * _BATCHES :] > middle).reshape(_BATCHES, batch).mean(axis=1)
    # How many neighbours count as one independent sample: at least one, though chance can make the variance smaller.
    per_independent = max(1.0, batch * float(signs.var(ddof=1)) / _INDEPENDENT)
    low, high = _ranks(n, _T95 * sqrt(n * per_independent) / 2)
    ordered = np.partition(samples, (low, high))
    return MedianInterval(float(ordered[low]), middle, float(ordered[high]))


def _ranks(count: int, distance: float) -> tuple[int, int]:
    middle = (count - 1) / 2
    return max(0, floor(middle - distance)), min(count - 1, ceil(middle + distance))


def clopper_pearson(hits: int, of: int) -> tuple[float, float]:
    """The exact two-sided 95 % interval of a share, 0 to 1. Imports scipy."""
    from scipy.special import betaincinv

    low = 0.0 if hits == 0 else float(betaincinv(hits, of - hits + 1, 0.025))
    high = 1.0 if hits == of else float(betaincinv(hits + 1, of - hits, 0.975))
    return low, high
