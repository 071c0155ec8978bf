"""The verdict on one benchmark from its rounds so far: pass, slower, or undecided. Pure. VERDICT.md draws it.

"Slower" excludes 1 at the suite's `alarm_rate`, which the benchmarks share evenly. "Pass" excludes the tolerated growth
at `MISS_RATE`. "Faster" excludes 1, at 95 % if the gain is large.

Three ratios share a benchmark's alarm rate (`ALARM_SHARES`): those of the median block, of the mean step, and of the
steps late in a round. Each may say slower. The first decides between pass and undecided, since noise makes the others
too wide.

Interim analyses share both rates (alpha spending). Half of a rate is for clear cases: analysis k may spend 1/2^k of it.
The other half is for small changes, which need all rounds: when a share t of the budget is over, t^2 of it may be spent
(Kim and DeMets 1987, power family). The sum stays within the whole rate for any number of analyses and any dependence
between them (Bonferroni's inequality).

On all cores the scheduler makes equal processes differ. There the ratio of "slower" must also be above the growth that
these rounds detect nine times in ten. If the twin is slower or faster than base by the same rule, the verdict is
undecided.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, expm1, log, log1p
from statistics import fmean, median

from dpbench.gate import words
from dpbench.gate.judgement import Quantity, TimeJudgement, TimeRatio, Verdict
from dpbench.gate.rounds import RoundRatio
from dpbench.gate.settings import Benchmark, Cores
from dpbench.stats.estimate import standard_error, t_quantile

PRINTED_RISK = 0.025
"""The risk at each end of a printed interval."""
MISS_RATE = 0.05
"""How often a benchmark may pass whose growth is exactly the tolerated one."""
FIRST_ANALYSIS = 5
"""Rounds before the first interim analysis."""

_MOST_ROUNDS, _FOR_PASS, _FOR_SLOWER = 200, 1.3, 2.4
"""The rounds beyond which a gate is no gate; and how much longer than an interval of 95 % that of a decision is.

By `alpha_spent_at`, with 5 to 14 rounds: 1.14 to 1.32 for a pass, 1.8 to 4.6 for slower with one to eight benchmarks.
"""
_GROWTH = 1.4
_NINE_IN_TEN = 0.9
_SET_UP = 0.05
"""A smaller change of a set-up is not named."""
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


ALARM_SHARES: Mapping[Quantity, float] = {"median": 0.6, "mean": 0.2, "later": 0.2}
_LOOKS_SLOWER = 0.05
"""The risk at which a mean or a late growth that excludes no change postpones a pass."""


def judge(benchmark: Benchmark, rounds: Sequence[RoundRatio], analysis: Analysis, risks: Risks) -> TimeJudgement:
    """Two rounds or more are needed. If UNDECIDED, more rounds may decide."""
    heads, twins = _estimates(rounds)
    rules = _rules(benchmark, heads, analysis, risks)
    verdict, quantity, why = _verdict(heads, twins, rules, is_last=analysis.share == 1)
    ratios = {name: head.as_ratio() for name, head in heads.items()}
    return TimeJudgement(
        benchmark=benchmark.name,
        verdict=verdict,
        why=why,
        threshold=benchmark.threshold,
        rounds=len(rounds),
        looks=analysis.number,
        cores=rounds[-1].cores,
        base_step_s=median(ratio.base_s for ratio in rounds),
        head_step_s=median(ratio.head_s for ratio in rounds),
        ratio=ratios["median"],
        twin=twins["median"].as_ratio(),
        mean=ratios.get("mean"),
        later=ratios.get("later"),
        quantity=quantity,
        detectable=rules["median"].detectable(heads["median"]),
        set_up=_changed_set_up([ratio.set_up for ratio in rounds]),
    )


def _changed_set_up(ratios: Sequence[float | None]) -> float | None:
    """The median over rounds, if all rounds agree that it changed."""
    known = [ratio for ratio in ratios if ratio is not None]
    changed = len(known) == len(ratios) and (min(known) > 1 + _SET_UP or max(known) < 1 - _SET_UP)
    return median(known) if changed else None


def rounds_to_decide(judgement: TimeJudgement) -> int | None:
    """About how many rounds more would decide an undecided benchmark; None if over `_MOST_ROUNDS` would.

    The interval's length falls with the square root of the rounds. It must lie below the tolerated growth, or above 1.
    """
    ratio, rounds = judgement.decisive, judgement.rounds
    if ratio is None:
        return FIRST_ANALYSIS - rounds
    value, tolerated = log(ratio.value), log1p(judgement.threshold)
    room, longer = (tolerated - value, _FOR_PASS) if value < tolerated else (value, _FOR_SLOWER)
    needed = ceil(rounds * (longer * log(ratio.high / ratio.low) / 2 / max(room, 1e-9)) ** 2)
    return max(1, needed - rounds) if needed <= _MOST_ROUNDS else None


def twin_alarms(benchmark: Benchmark, rounds: Sequence[RoundRatio], analysis: Analysis, risks: Risks) -> bool:
    """Whether head's rule would call base's twin slower than base."""
    _, twins = _estimates(rounds)
    rules = _rules(benchmark, twins, analysis, risks)
    return any(rules[quantity].is_slower(twin) for quantity, twin in twins.items())


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

    def as_ratio(self) -> TimeRatio:
        return TimeRatio(value=exp(self.value), low=exp(self.low(PRINTED_RISK)), high=exp(self.high(PRINTED_RISK)))


def estimate(logs: Sequence[float]) -> LogEstimate:
    """Two rounds or more are needed."""
    return LogEstimate(fmean(logs), standard_error(logs), len(logs) - 1)


_Estimates = Mapping[Quantity, LogEstimate]


def _estimates(rounds: Sequence[RoundRatio]) -> tuple[_Estimates, _Estimates]:
    """Head's and the twin's, of each quantity that all rounds have."""
    contrasts = {quantity: [getattr(ratio, quantity) for ratio in rounds] for quantity in ALARM_SHARES}
    complete = {quantity: of_rounds for quantity, of_rounds in contrasts.items() if None not in of_rounds}
    return (
        {quantity: estimate([contrast.head for contrast in of_rounds]) for quantity, of_rounds in complete.items()},
        {quantity: estimate([contrast.twin for contrast in of_rounds]) for quantity, of_rounds in complete.items()},
    )


def _verdict(
    heads: _Estimates, twins: _Estimates, rules: Mapping[Quantity, "_Rule"], *, is_last: bool
) -> tuple[Verdict, Quantity, str]:
    rule, head = rules["median"], heads["median"]
    tolerated = 100 * expm1(rule.tolerated)
    slower = [quantity for quantity in heads if rules[quantity].is_slower(heads[quantity])]
    if any(rules[quantity].is_off(twins[quantity]) for quantity in slower):
        return Verdict.UNDECIDED, slower[0], words.OFF
    if slower:
        return Verdict.SLOWER, slower[0], words.SLOWER.format(tolerated) + words.QUANTITIES[slower[0]].reason
    if head.high(rule.miss_risk) >= rule.tolerated:
        return Verdict.UNDECIDED, "median", words.UNCLEAR.format(tolerated)
    looking = [name for name in heads if name != "median" and rules[name].looks_slower(heads[name])]
    if looking and not is_last:
        return Verdict.UNDECIDED, looking[0], words.LOOKS_SLOWER + words.QUANTITIES[looking[0]].reason
    if rule.says_faster(head) and not looking and not rule.is_off(twins["median"]):
        return Verdict.FASTER, "median", words.FASTER
    return Verdict.PASS, "median", words.PASSES.format(tolerated)


@dataclass(frozen=True)
class _Rule:
    """The decision rule of one quantity at one interim analysis. `tolerated` is a logarithm."""

    tolerated: float
    on_all_cores: bool
    alarm_risk: float
    miss_risk: float

    def is_slower(self, log_estimate: LogEstimate) -> bool:
        return log_estimate.low(self.alarm_risk) > 0 and log_estimate.value > self._alarm_above(log_estimate)

    def is_faster(self, log_estimate: LogEstimate) -> bool:
        return log_estimate.high(self.alarm_risk) < 0

    def says_faster(self, log_estimate: LogEstimate) -> bool:
        """For a gain above the tolerated growth the printed interval is sure enough."""
        is_large = -log_estimate.value > self.tolerated
        return self.is_faster(log_estimate) or (is_large and log_estimate.high(PRINTED_RISK) < 0)

    def looks_slower(self, log_estimate: LogEstimate) -> bool:
        return log_estimate.low(_LOOKS_SLOWER) > 0 and log_estimate.value > self.tolerated

    def is_off(self, twin: LogEstimate) -> bool:
        return self.is_slower(twin) or (self.is_faster(twin) and -twin.value > self._alarm_above(twin))

    def detectable(self, log_estimate: LogEstimate) -> float:
        """The smallest growth, as a share, that is called slower nine times in ten."""
        seen = max(self._surely_seen(log_estimate), self._alarm_above(log_estimate) + _power_margin(log_estimate))
        return expm1(min(seen, _MOST_LOG))

    def _alarm_above(self, log_estimate: LogEstimate) -> float:
        return max(self.tolerated, self._surely_seen(log_estimate)) if self.on_all_cores else self.tolerated

    def _surely_seen(self, log_estimate: LogEstimate) -> float:
        """The smallest growth, as a logarithm, that excludes no change nine times in ten."""
        return t_quantile(1 - self.alarm_risk, log_estimate.degrees) * log_estimate.error + _power_margin(log_estimate)


def _rules(
    benchmark: Benchmark, quantities: Iterable[Quantity], analysis: Analysis, risks: Risks
) -> Mapping[Quantity, _Rule]:
    shares = {quantity: ALARM_SHARES[quantity] for quantity in quantities}
    alarm_risk, miss_risk = alpha_spent_at(analysis, risks.alarm), alpha_spent_at(analysis, risks.miss)
    tolerated, on_all_cores, whole = log1p(benchmark.threshold), benchmark.cores is Cores.ALL, sum(shares.values())
    return {
        quantity: _Rule(tolerated, on_all_cores, alarm_risk * share / whole, miss_risk)
        for quantity, share in shares.items()
    }


def _power_margin(log_estimate: LogEstimate) -> float:
    return t_quantile(_NINE_IN_TEN, log_estimate.degrees) * log_estimate.error
