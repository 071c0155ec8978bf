"""The verdict on one benchmark from its rounds so far: pass, slower, or undecided. Pure. VERDICT.md draws it.

"Slower" excludes 1 at the suite's `alarm_rate`, which the benchmarks share evenly. "Pass" excludes the tolerated growth
at `MISS_RATE`. "Faster" excludes 1, at 95 % if the gain is large.

Three ratios share a benchmark's alarm rate (`ALARM_SHARES`): those of the median block, of the mean step, and of the
steps late in a round. Each may say slower. The first decides between pass and undecided, since noise makes the others
too wide.

On all cores the scheduler makes equal processes differ. There the ratio of "slower" must also be above the growth that
these rounds detect nine times in ten. If the twin is slower or faster than base by the same rule, the verdict is
undecided.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import expm1, log1p
from statistics import median

from dpbench.gate import words
from dpbench.gate.judgement import Quantity, TimeJudgement
from dpbench.gate.rounds import RoundRatio
from dpbench.gate.settings import Benchmark, Cores
from dpbench.judge.decision import Verdict
from dpbench.judge.repeated import FIRST_ANALYSIS, Analysis, LogEstimate, Risks, Rule, alpha_spent_at, estimate

_FOR_PASS = 1.3
_FOR_SLOWER = 2.4
"""How much longer than an interval of 95 % that of a decision is.

By `alpha_spent_at`, with 5 to 14 rounds: 1.14 to 1.32 for a pass, 1.8 to 4.6 for slower with one to eight benchmarks.
"""
_SET_UP = 0.05
"""A smaller change of a set-up is not named."""
ALARM_SHARES: Mapping[Quantity, float] = {"median": 0.6, "mean": 0.2, "later": 0.2}


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
    known_ratios = [ratio for ratio in ratios if ratio is not None]
    changed = len(known_ratios) == len(ratios) and (min(known_ratios) > 1 + _SET_UP or max(known_ratios) < 1 - _SET_UP)
    return median(known_ratios) if changed else None


def rounds_to_decide(judgement: TimeJudgement) -> int | None:
    """About how many rounds more would decide an undecided benchmark; None if too many."""
    ratio, rounds = judgement.decisive, judgement.rounds
    if ratio is None:
        return FIRST_ANALYSIS - rounds
    needed = ratio.rounds_to_decide(rounds, 1 + judgement.threshold, _FOR_PASS, _FOR_SLOWER)
    return None if needed is None else needed - rounds


def twin_alarms(benchmark: Benchmark, rounds: Sequence[RoundRatio], analysis: Analysis, risks: Risks) -> bool:
    """Whether head's rule would call base's twin slower than base."""
    _, twins = _estimates(rounds)
    rules = _rules(benchmark, twins, analysis, risks)
    return any(rules[quantity].is_slower(twin) for quantity, twin in twins.items())


_Estimates = Mapping[Quantity, LogEstimate]


def _estimates(rounds: Sequence[RoundRatio]) -> tuple[_Estimates, _Estimates]:
    """Head's and the twin's, of each quantity that all rounds have."""
    log_ratios = {quantity: [getattr(ratio, quantity) for ratio in rounds] for quantity in ALARM_SHARES}
    complete = {quantity: of_rounds for quantity, of_rounds in log_ratios.items() if None not in of_rounds}
    return (
        {quantity: estimate([ratios.head for ratios in of_rounds]) for quantity, of_rounds in complete.items()},
        {quantity: estimate([ratios.twin for ratios in of_rounds]) for quantity, of_rounds in complete.items()},
    )


def _verdict(
    heads: _Estimates, twins: _Estimates, rules: Mapping[Quantity, Rule], *, is_last: bool
) -> tuple[Verdict, Quantity, str]:
    rule, head = rules["median"], heads["median"]
    tolerated = 100 * expm1(rule.tolerated)
    slower = [quantity for quantity in heads if rules[quantity].is_slower(heads[quantity])]
    if any(rules[quantity].is_off(twins[quantity]) for quantity in slower):
        return Verdict.UNDECIDED, slower[0], words.OFF
    if slower:
        return Verdict.SLOWER, slower[0], words.SLOWER.format(tolerated) + words.QUANTITIES[slower[0]].reason
    if rule.verdict(head) is Verdict.UNDECIDED:
        return Verdict.UNDECIDED, "median", words.UNCLEAR.format(tolerated)
    looking = [name for name in heads if name != "median" and rules[name].looks_slower(heads[name])]
    if looking and not is_last:
        return Verdict.UNDECIDED, looking[0], words.LOOKS_SLOWER + words.QUANTITIES[looking[0]].reason
    if rule.is_faster(head) and not looking and not rule.is_off(twins["median"]):
        return Verdict.FASTER, "median", words.FASTER
    return Verdict.PASS, "median", words.PASSES.format(tolerated)


def _rules(
    benchmark: Benchmark, quantities: Iterable[Quantity], analysis: Analysis, risks: Risks
) -> Mapping[Quantity, Rule]:
    shares = {quantity: ALARM_SHARES[quantity] for quantity in quantities}
    alarm_risk, miss_risk = alpha_spent_at(analysis, risks.alarm), alpha_spent_at(analysis, risks.miss)
    tolerated, on_all_cores, whole = log1p(benchmark.threshold), benchmark.cores is Cores.ALL, sum(shares.values())
    return {
        quantity: Rule(tolerated, on_all_cores, alarm_risk * share / whole, miss_risk)
        for quantity, share in shares.items()
    }
