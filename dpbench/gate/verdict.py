"""From the rounds so far to a verdict: pass, slower, or not yet. Pure.

    head / base    1 ................. 1 + tolerated ........
    slower         |   [------- ratio -------------]            the ratio is above what is tolerated, and 1 is excluded
    pass       [---|--- ratio ---]         |                    more than is tolerated is excluded
    undecided  [---|------------- ratio ---|--------]           neither, when time is up

1 is excluded at the suite's `alarm_rate`, shared by benchmarks and looks (looks.py). What is tolerated is excluded at
`MISS_RATE`, shared by looks. On all cores, where the scheduler makes processes differ, a ratio must also be above what
these rounds can surely see. A twin that would be called slower, or faster, shows that the machine does not treat equal code
alike: then slower is undecided.
"""
# MERGED-DOC gate.looks: """When a gate looks at its rounds, and how much of its risk each look may spend. Pure. Looking again and again at the same data finds something sooner or later. Look k may therefore spend 1/2^k of the risk: however many looks there are, the sum stays below the whole, whatever binds them together (Bonferroni's inequality); the benchmarks of a suite share the risk evenly, for the same reason. """

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import expm1, log1p
from statistics import median

from dpbench.gate.judgement import TimeJudgement, Verdict
from dpbench.gate.ratio import LogEstimate, RoundRatio, estimate
from dpbench.gate.settings import Benchmark, Cores
from dpbench.stats.student import t_quantile

FIRST = 5
_GROWTH = 1.4


def looks() -> Iterator[int]:
    """After how many rounds: 5, 7, 10, 14, 19, 27, ..."""
    rounds = float(FIRST)
    while True:
        yield round(rounds)
        rounds *= _GROWTH


def alpha_spent_at(look: int, risk: float) -> float:
    """Of the whole `risk`, by look 1, 2, ..."""
    assert look >= 1
    return float(risk / 2**look)


MISS_RATE = 0.05
"""How often a benchmark may pass whose growth is just what is tolerated."""

_NINE_IN_TEN = 0.9
_MOST_LOG = 700.0  # two rounds that differ much can see nothing; a float ends at exp(709)


@dataclass(frozen=True)
class Rule:
    """`alarm_risk` is one benchmark's share of the suite's."""

    alarm_risk: float
    miss_risk: float = MISS_RATE


def rule_for(alarm_rate: float, benchmarks: int) -> Rule:
    return Rule(alarm_rate / benchmarks)


def judge(benchmark: Benchmark, rounds: Sequence[RoundRatio], look: int, rule: Rule) -> TimeJudgement:
    """Of two rounds or more; `look` is 1 the first time. UNDECIDED is what more rounds may decide."""
    head, twin = estimate([each.contrast for each in rounds]), estimate([each.twin for each in rounds])
    bar = _bar(benchmark, look, rule)
    verdict, why = bar.verdict(head, twin)
    return TimeJudgement(
        benchmark=benchmark.name,
        verdict=verdict,
        why=why,
        threshold=benchmark.threshold,
        rounds=len(rounds),
        looks=look,
        cores=rounds[-1].cores,
        base_step_s=median(each.base_s for each in rounds),
        head_step_s=median(each.head_s for each in rounds),
        ratio=head.as_ratio(),
        twin=twin.as_ratio(),
        detectable=bar.detectable(head),
    )


def twin_alarms(benchmark: Benchmark, rounds: Sequence[RoundRatio], look: int, rule: Rule) -> bool:
    """Whether the twin, which is base itself, would be called slower by the rule that head is judged by."""
    return _bar(benchmark, look, rule).is_slower(estimate([each.twin for each in rounds]))


@dataclass(frozen=True)
class _Bar:
    """What a benchmark is held against at one look; `tolerated` is a logarithm."""

    tolerated: float
    on_all_cores: bool
    alarm_risk: float
    miss_risk: float

    def verdict(self, head: LogEstimate, twin: LogEstimate) -> tuple[Verdict, str]:
        percent = f"{100 * expm1(self.tolerated):.3g} %"
        if self.is_slower(head):
            if self._is_off(twin):
                return (
                    Verdict.UNDECIDED,
                    "base differs from itself as much: this machine does not treat equal code alike",
                )
            return Verdict.SLOWER, f"above the {percent} that are tolerated, and that nothing changed is excluded"
        if head.high(self.miss_risk) < self.tolerated:
            return Verdict.PASS, f"more than the {percent} that are tolerated is excluded"
        return Verdict.UNDECIDED, f"neither no change nor more than the {percent} that are tolerated is excluded"

    def is_slower(self, found: LogEstimate) -> bool:
        return found.low(self.alarm_risk) > 0 and found.value > self._alarm_above(found)

    def detectable(self, found: LogEstimate) -> float:
        """The smallest growth, as a share, that is called slower nine times in ten."""
        seen = max(self._surely_seen(found), self._alarm_above(found) + _power_margin(found))
        return expm1(min(seen, _MOST_LOG))

    def _is_off(self, twin: LogEstimate) -> bool:
        return self.is_slower(twin) or (twin.high(self.alarm_risk) < 0 and -twin.value > self._alarm_above(twin))

    def _alarm_above(self, found: LogEstimate) -> float:
        return max(self.tolerated, self._surely_seen(found)) if self.on_all_cores else self.tolerated

    def _surely_seen(self, found: LogEstimate) -> float:
        """The smallest growth, as a logarithm, that excludes no change nine times in ten."""
        return t_quantile(1 - self.alarm_risk, found.degrees) * found.error + _power_margin(found)


def _bar(benchmark: Benchmark, look: int, rule: Rule) -> _Bar:
    return _Bar(
        tolerated=log1p(benchmark.threshold),
        on_all_cores=benchmark.cores is Cores.ALL,
        alarm_risk=alpha_spent_at(look, rule.alarm_risk),
        miss_risk=alpha_spent_at(look, rule.miss_risk),
    )


def _power_margin(found: LogEstimate) -> float:
    return t_quantile(_NINE_IN_TEN, found.degrees) * found.error
