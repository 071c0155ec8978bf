"""The rule at several looks at growing rounds, with errors of both kinds. Pure.

Interim analyses share both rates (alpha spending). Half of a rate is for clear cases: analysis k may spend 1/2^k of it.
The other half is for small changes, which need all rounds: when a share t of the budget is over, t^2 of it may be spent
(Kim and DeMets 1987, power family). The sum stays within the whole rate for any number of analyses and any dependence
between them (Bonferroni's inequality).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1
from statistics import fmean

from dpbench.judge.decision import Verdict, decide
from dpbench.judge.estimate import Estimate, standard_error, t_quantile

PRINTED_RISK = 0.025
"""The risk at each end of a printed interval."""
MISS_RATE = 0.05
"""How often a benchmark may pass whose growth is exactly the tolerated one."""
FIRST_ANALYSIS = 5
"""Rounds before the first interim analysis."""
_GROWTH = 1.4
_NINE_IN_TEN = 0.9
_LOOKS_SLOWER = 0.05
_MOST_LOG = 700.0  # two rounds that differ much can detect nothing; the largest float is exp(709)


def analysis_rounds() -> Iterator[int]:
    """Yield 5, 7, 10, 14, 19, 27, ..."""
    rounds = float(FIRST_ANALYSIS)
    while True:
        yield round(rounds)
        rounds *= _GROWTH


@dataclass(frozen=True)
class Analysis:
    """Interim analysis `number`, from 1 up, when `share` of the budget is over: 1 at the last one."""

    number: int
    share: float = 0.0
    share_before: float = 0.0

    def __post_init__(self) -> None:
        assert self.number >= 1
        assert 0 <= self.share_before <= self.share <= 1


def alpha_spent_at(analysis: Analysis, risk: float) -> float:
    """The part of the whole `risk` that an interim analysis may spend."""
    for_clear_cases = 2.0**-analysis.number
    for_small_changes = analysis.share**2 - analysis.share_before**2
    return risk * (for_clear_cases + for_small_changes) / 2


@dataclass(frozen=True)
class Risks:
    """The error rates of one benchmark over all interim analyses."""

    alarm: float
    miss: float = MISS_RATE


def risks_for(alarm_rate: float, benchmarks: int) -> Risks:
    return Risks(alarm_rate / benchmarks)


@dataclass(frozen=True)
class LogEstimate:
    """The mean of logarithms, its standard error, and the error's degrees of freedom."""

    value: float
    error: float
    degrees: int

    def low(self, risk: float) -> float:
        """The lower bound that the true value is below with probability `risk`, 0 to 1."""
        return self.value - t_quantile(1 - risk, self.degrees) * self.error

    def high(self, risk: float) -> float:
        """The upper bound that the true value exceeds with probability `risk`, 0 to 1."""
        return self.value + t_quantile(1 - risk, self.degrees) * self.error

    @property
    def inverse(self) -> "LogEstimate":
        return replace(self, value=-self.value)

    def as_ratio(self) -> Estimate:
        return Estimate(exp(self.value), exp(self.low(PRINTED_RISK)), exp(self.high(PRINTED_RISK)))


def estimate(logs: Sequence[float]) -> LogEstimate:
    """Two rounds or more are needed."""
    return LogEstimate(fmean(logs), standard_error(logs), len(logs) - 1)


@dataclass(frozen=True)
class Rule:
    """The rule of one ratio at one interim analysis. `tolerated` is a logarithm.

    Where equal processes differ, as on all cores, what is slower must be above the growth that is `seen_surely`.
    """

    tolerated: float
    seen_surely: bool
    alarm_risk: float
    miss_risk: float

    def verdict(self, growth: LogEstimate) -> Verdict:
        ends = growth.low(self.alarm_risk), growth.high(self.miss_risk)
        return decide(growth.value, ends, 0.0, self.tolerated, self._alarm_above(growth))

    def is_slower(self, growth: LogEstimate) -> bool:
        return self.verdict(growth) is Verdict.SLOWER

    def is_faster(self, growth: LogEstimate) -> bool:
        """For a gain above the tolerated growth the printed interval is sure enough."""
        is_large = -growth.value > self.tolerated
        return growth.high(self.alarm_risk) < 0 or (is_large and growth.high(PRINTED_RISK) < 0)

    def looks_slower(self, growth: LogEstimate) -> bool:
        """At a risk too large to call it slower."""
        return growth.low(_LOOKS_SLOWER) > 0 and growth.value > self.tolerated

    def is_off(self, twin: LogEstimate) -> bool:
        """Whether equal code is slower or faster."""
        return self.is_slower(twin) or self.is_slower(twin.inverse)

    def detectable(self, growth: LogEstimate) -> float:
        """The smallest growth, as a share, that is called slower nine times in ten."""
        seen = max(self._surely_seen(growth), self._alarm_above(growth) + _power_margin(growth))
        return expm1(min(seen, _MOST_LOG))

    def _alarm_above(self, growth: LogEstimate) -> float:
        return max(self.tolerated, self._surely_seen(growth)) if self.seen_surely else self.tolerated

    def _surely_seen(self, growth: LogEstimate) -> float:
        """The smallest growth, as a logarithm, that excludes no change nine times in ten."""
        return t_quantile(1 - self.alarm_risk, growth.degrees) * growth.error + _power_margin(growth)


def _power_margin(growth: LogEstimate) -> float:
    return t_quantile(_NINE_IN_TEN, growth.degrees) * growth.error
