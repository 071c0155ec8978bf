"""Estimates over rounds: step times and their ratios, with 95 % intervals.

Processes of identical code differ more than the samples in one of them, so the round, one process, is the unit. It
counts by the median of its samples. The value is the median over rounds. The interval is Student's t on the logarithms
of the round medians, for a ratio Welch's.

The percentage of a ratio's intervals that contain 1, of 4,000 simulated comparisons of two identical cases: 30 samples
a round with 5 % noise and one spike in ten, rounds log-normal with standard deviation s.

    rounds   s = 5 %   10 %   20 %   10 %, one round in ten 1.5 times slower   10 %, the same drift in both again
         2      97.8   97.4   97.5
         3      96.5   96.8   96.4
         5      95.8   95.2   95.6                                      96.6                                 98.9
        10      95.1   95.1   95.0

A percentile bootstrap over rounds covers as much, with intervals a tenth wider. Student's t on ratios of paired rounds
is narrower only if both cases share a drift.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, hypot, log, sqrt
from statistics import median
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpbench.judge.decision import MOST_ROUNDS, Verdict, decide
from dpbench.text.quantities import decimals

# Two-sided 95 % quantiles.
_DEGREES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 30, np.inf)
_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3060, 2.2281, 2.1314, 2.0423, 1.9600)


def t_quantile(probability: float, degrees: float) -> float:
    """Exact, for a `probability` of 0 to 1; imports scipy."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def t95_from_table(degrees: float) -> float:
    """The factor of a two-sided 95 % interval for 1 degree of freedom or more, without scipy; at most 3 % too large."""
    inverse = [1 / table_degrees for table_degrees in reversed(_DEGREES)]
    return float(np.exp(np.interp(1 / degrees, inverse, np.log(_QUANTILES[::-1]))))


def standard_error(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Of the mean of n values, two or more, with n - 1 degrees of freedom."""
    return float(np.std(values, ddof=1)) / sqrt(len(values))


Rounds: TypeAlias = Sequence[Sequence[float]]
"""The samples of each round in seconds, above 0."""


@final
@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, whose ends are None for a single round."""

    value: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """Both are the value if there is no interval."""
        return self.value if self.low is None else self.low, self.value if self.high is None else self.high

    @property
    def verdict(self) -> Verdict:
        """SLOWER, FASTER, or UNDECIDED if a ratio's interval contains 1 or is missing."""
        return Verdict.UNDECIDED if self.low is None else decide(self.value, self.ends, same=1.0, limit=1.0)

    def rounds_to_decide(
        self, rounds: int, limit: float = 1.0, for_pass: float = 1.0, for_slower: float = 1.0
    ) -> int | None:
        """About how many rounds, more than these, decide a ratio of `rounds`; None if over `MOST_ROUNDS`, or unknown.

        The interval must lie below the limit or above 1, and its length falls with the square root of the rounds.
        `for_pass` and `for_slower` say how much longer than this one the interval of such a decision is.
        """
        distances = log_distances(self)
        if distances is None:
            return None
        growth, tolerated = log(self.value), log(limit)
        room, longer = (tolerated - growth, for_pass) if growth < tolerated else (growth, for_slower)
        if room <= 0:
            return None
        needed = ceil(rounds * (longer * sum(distances) / 2 / max(room, 1e-9)) ** 2)
        return max(needed, rounds + 1) if needed <= MOST_ROUNDS else None

    def text(self, unit: float = 1.0) -> str:
        """Such as ``1.23 [1.20, 1.31]``; only the value without an interval."""
        digits = decimals(self.value / unit)
        value, *ends = (f"{x / unit:,.{digits}f}" for x in (self.value, self.low, self.high) if x is not None)
        return f"{value} [{', '.join(ends)}]" if ends else value


def median_of_rounds(rounds: Rounds) -> Estimate:
    """In seconds. Raise ValueError as `log_medians` does."""
    logs = log_medians(rounds)
    return _estimate(float(np.median(logs)), float(logs.mean()), *_spread(logs))


def ratio_of_rounds(times: Rounds, reference: Rounds) -> Estimate:
    """Raise ValueError as `log_medians` does."""
    logs, reference_logs = log_medians(times), log_medians(reference)
    value = float(np.median(logs) - np.median(reference_logs))
    centre = float(logs.mean() - reference_logs.mean())
    if len(logs) == 1 or len(reference_logs) == 1:
        return _estimate(value, centre, 0.0, 0.0)
    (error_a, degrees_a), (error_b, degrees_b) = _spread(logs), _spread(reference_logs)
    error = float(np.hypot(error_a, error_b))
    # Welch-Satterthwaite
    weight = error_a**4 / degrees_a + error_b**4 / degrees_b
    return _estimate(value, centre, error, error**4 / weight if weight > 0 else degrees_a + degrees_b)


def log_medians(rounds: Rounds) -> NDArray[np.float64]:
    """The logarithm of each round's median: shape (rounds,).

    Raise ValueError without a round, for a round without a sample, and for a sample not above 0.
    """
    if not rounds or any(len(samples) == 0 or min(samples) <= 0 for samples in rounds):
        raise ValueError("an estimate needs a round, and each round samples above 0")
    return np.log([median(samples) for samples in rounds])


def _spread(logs: NDArray[np.float64]) -> tuple[float, float]:
    if len(logs) == 1:
        return 0.0, 0.0
    return standard_error(logs), float(len(logs) - 1)


def _estimate(value: float, centre: float, error: float, degrees: float) -> Estimate:
    """From logarithms. One slow round can put the median outside the interval around the mean, which is then
    widened.
    """
    if degrees == 0:
        return Estimate(float(np.exp(value)), None, None)
    half = t95_from_table(degrees) * error
    low, high = min(centre - half, value), max(centre + half, value)
    return Estimate(float(np.exp(value)), float(np.exp(low)), float(np.exp(high)))


def ratio_of_estimates(head: Estimate, base: Estimate) -> Estimate:
    """Without an interval if one of the two has none, or an end not above 0.

    On logarithms, half-widths are root sums of squares of the two intervals' half-widths: the two are taken as
    independent. Source: Donner and Zou 2012, "Closed-form confidence intervals for functions of the normal mean and
    standard deviation".
    """
    value = head.value / base.value
    of_head, of_base = log_distances(head), log_distances(base)
    if of_head is None or of_base is None:
        return Estimate(value, None, None)
    below, above = hypot(of_head[0], of_base[1]), hypot(of_head[1], of_base[0])
    return Estimate(value, value * exp(-below), value * exp(above))


def log_distances(estimate: Estimate) -> tuple[float, float] | None:
    """Distances from the value to the ends, as logarithms of 0 or more, or None."""
    if estimate.low is None or estimate.high is None or min(estimate.value, estimate.low, estimate.high) <= 0:
        return None
    return max(0.0, log(estimate.value / estimate.low)), max(0.0, log(estimate.high / estimate.value))
