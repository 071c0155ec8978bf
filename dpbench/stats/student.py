"""Quantiles of Student's t, and the standard error that they multiply.

Importing scipy takes longer than all else in a report, which needs one probability only and uses a table.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

# Two-sided 95 % quantiles.
_DEGREES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 30, np.inf)
_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3060, 2.2281, 2.1314, 2.0423, 1.9600)


def t_quantile(probability: float, degrees: float) -> float:
    """Exact, for a `probability` of 0 to 1; imports scipy."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def t95_from_table(degrees: float) -> float:
    """The quantile at 97.5 % for 1 degree of freedom or more, the factor of a two-sided 95 % interval, without scipy.

    Between the table's entries it is at most 3 % too large.
    """
    inverse = [1 / known for known in reversed(_DEGREES)]
    return float(np.exp(np.interp(1 / degrees, inverse, np.log(_QUANTILES[::-1]))))


def standard_error(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The standard error of the mean of n values, two or more, with n - 1 degrees of freedom."""
    return float(np.std(values, ddof=1)) / sqrt(len(values))
