"""From the rounds so far to a verdict: pass, slower, or not yet. Pure.

    head / base    1 ................. 1 + tolerated ........
    slower         |   [------- ratio -------------]            the ratio is above what is tolerated, and 1 is excluded
    pass       [---|--- ratio ---]         |                    more than is tolerated is excluded
    undecided  [---|------------- ratio ---|--------]           neither, when time is up

1 is excluded at the suite's `alarm_rate`, shared by benchmarks and looks (looks.py). What is tolerated is excluded at
`MISS_RATE`, shared by looks. A twin that would be called slower, or faster, shows that the box does not treat equal
code alike: then slower is undecided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, log1p
from statistics import median

from dpbench.gate.judgement import TimeJudgement, Verdict
from dpbench.gate.looks import spent_at
from dpbench.gate.ratio import Estimate, RoundRatio, estimate, t_quantile
from dpbench.gate.settings import Benchmark, Cores

MISS_RATE = 0.05
"""How often a benchmark may pass whose growth is just what is tolerated."""

_NINE_IN_TEN = 0.9


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
    alarm_risk, miss_risk = spent_at(look, rule.alarm_risk), spent_at(look, rule.miss_risk)
    tolerated = _tolerated(benchmark, head, alarm_risk)
    verdict, why = _verdict(head, twin, tolerated, alarm_risk, miss_risk)
    return TimeJudgement(
        benchmark=benchmark.name,
        verdict=verdict,
        why=why,
        threshold=tolerated,
        rounds=len(rounds),
        looks=look,
        cores=rounds[-1].cores,
        base_step_s=median(each.base_s for each in rounds),
        head_step_s=median(each.head_s for each in rounds),
        ratio=head.as_ratio(),
        twin=twin.as_ratio(),
        detectable=max(_detectable(head, alarm_risk), exp(log1p(tolerated) + _power_margin(head)) - 1),
    )


def twin_alarms(benchmark: Benchmark, rounds: Sequence[RoundRatio], look: int, rule: Rule) -> bool:
    """Whether the twin, which is base itself, would be called slower by the rule that head is judged by."""
    twin = estimate([each.twin for each in rounds])
    risk = spent_at(look, rule.alarm_risk)
    return _is_slower(twin, _tolerated(benchmark, twin, risk), risk)


def _verdict(
    head: Estimate, twin: Estimate, tolerated: float, alarm_risk: float, miss_risk: float
) -> tuple[Verdict, str]:
    if _is_slower(head, tolerated, alarm_risk):
        if _is_off(twin, tolerated, alarm_risk):
            return Verdict.UNDECIDED, "base differs from itself as much: the box does not treat equal code alike"
        return Verdict.SLOWER, f"above the {tolerated:.3g} that is tolerated, and no change is excluded"
    if head.high(miss_risk) < log1p(tolerated):
        return Verdict.PASS, "more than is tolerated is excluded"
    return Verdict.UNDECIDED, "neither no change nor more than is tolerated is excluded"


def _is_slower(found: Estimate, tolerated: float, risk: float) -> bool:
    return found.low(risk) > 0 and found.value > log1p(tolerated)


def _is_off(twin: Estimate, tolerated: float, risk: float) -> bool:
    return _is_slower(twin, tolerated, risk) or (twin.high(risk) < 0 and twin.value < -log1p(tolerated))


def _tolerated(benchmark: Benchmark, found: Estimate, risk: float) -> float:
    """On all cores processes differ by what the scheduler did to them: never less than these rounds can see."""
    if benchmark.cores is Cores.ONE:
        return benchmark.threshold
    return max(benchmark.threshold, _detectable(found, risk))


def _detectable(found: Estimate, risk: float) -> float:
    """The smallest growth, as a share, that excludes no change nine times in ten."""
    return expm1(t_quantile(1 - risk, found.degrees) * found.error + _power_margin(found))


def _power_margin(found: Estimate) -> float:
    return t_quantile(_NINE_IN_TEN, found.degrees) * found.error
