"""Tier 1: rounds are taken and looked at until every benchmark is decided, one is slower, or time is up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dpbench.gate.judgement import TimeJudgement, Verdict
from dpbench.gate.ratio import RoundRatio
from dpbench.gate.settings import Benchmark
from dpbench.gate.take_round import Sides, Taken, take_round
from dpbench.gate.verdict import Rule, judge, looks, rule_for, twin_alarms
from dpbench.results.record import Environment
from dpbench.run.runner import Launcher

_LEAST_ROUNDS = 2

TakeRound = Callable[[Sequence[Benchmark], int], Taken]
"""Of these benchmarks, as round number n."""


@dataclass(frozen=True)
class Times:
    """What tier 1 found; `twin_alarmed` by benchmark, where its twin could be judged."""

    judgements: tuple[TimeJudgement, ...]
    twin_alarmed: dict[str, bool]
    environment: Environment | None


def taking(sides: Sides, lanes: tuple[str, ...], launch: Launcher) -> TakeRound:
    return lambda benchmarks, number: take_round(benchmarks, sides, number, lanes, launch)


def verdict_of(judgements: Sequence[TimeJudgement]) -> Verdict:
    """Of tier 1 alone, whatever was accepted."""
    verdicts = {each.verdict for each in judgements}
    return next((each for each in (Verdict.SLOWER, Verdict.UNDECIDED) if each in verdicts), Verdict.PASS)


@dataclass
class _Watch:
    """Whether there is time for one more round as long as the longest so far."""

    budget_s: float
    clock: Callable[[], float]
    longest_s: float = 0.0
    _begin_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin_s = self.clock()

    @property
    def left_s(self) -> float:
        return self.budget_s - (self.clock() - self._begin_s)

    def has_room(self) -> bool:
        return self.left_s > self.longest_s

    def timed(self, take: TakeRound, benchmarks: Sequence[Benchmark], number: int) -> Taken:
        start_s = self.clock()
        taken = take(benchmarks, number)
        self.longest_s = max(self.longest_s, self.clock() - start_s)
        return taken


def measure_times(
    benchmarks: Sequence[Benchmark],
    take: TakeRound,
    *,
    alarm_rate: float,
    budget_s: float,
    progress: Callable[[str], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Times:
    """No round begins that the budget has no room for, should it take as long as the longest so far."""
    rule, watch = rule_for(alarm_rate, len(benchmarks)), _Watch(budget_s, clock)
    rounds: dict[str, list[RoundRatio]] = {benchmark.name: [] for benchmark in benchmarks}
    judged = {benchmark.name: _not_judged(benchmark, 0) for benchmark in benchmarks}
    twins: dict[str, bool] = {}
    undecided, number, environment = list(benchmarks), 0, None
    for look, until in enumerate(looks(), start=1):
        while number < until and watch.has_room():
            progress(f"round {number + 1}, {len(undecided)} benchmarks to decide, {watch.left_s:.0f} s left")
            taken = watch.timed(take, undecided, number)
            number, environment = number + 1, taken.environment
            for name, ratio in taken.ratios.items():
                rounds[name].append(ratio)
        for benchmark in undecided:
            judged[benchmark.name] = _judged(benchmark, rounds[benchmark.name], look, rule)
            if number >= _LEAST_ROUNDS:
                # One look is enough, as it is for head.
                alarms = twin_alarms(benchmark, rounds[benchmark.name], look, rule)
                twins[benchmark.name] = twins.get(benchmark.name, False) or alarms
        undecided = [each for each in undecided if judged[each.name].verdict is Verdict.UNDECIDED]
        is_slower = any(each.verdict is Verdict.SLOWER for each in judged.values())
        if is_slower or not undecided or not watch.has_room():
            break
    return Times(tuple(judged.values()), twins, environment)


def _judged(benchmark: Benchmark, rounds: Sequence[RoundRatio], look: int, rule: Rule) -> TimeJudgement:
    if len(rounds) < _LEAST_ROUNDS:
        return _not_judged(benchmark, len(rounds))
    return judge(benchmark, rounds, look, rule)


def _not_judged(benchmark: Benchmark, rounds: int) -> TimeJudgement:
    return TimeJudgement(
        benchmark=benchmark.name,
        verdict=Verdict.UNDECIDED,
        why=f"the budget had room for {rounds} rounds; {_LEAST_ROUNDS} are the least that tell anything",
        threshold=benchmark.threshold,
        rounds=rounds,
        looks=0,
        cores="",
    )
