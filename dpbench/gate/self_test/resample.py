"""Gates drawn from recorded rounds: the very loop and rules of a gate, fed what was measured before. No process runs.

Each round of a drawn gate is one recorded round, drawn with replacement; benchmarks are drawn apart. A slowdown sits in
one benchmark, the others are equal. A clock that is told the recorded durations spends the budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from dpbench.gate.judgement import Verdict
from dpbench.gate.ratio import RoundRatio
from dpbench.gate.self_test.trials import Trial
from dpbench.gate.settings import Benchmark
from dpbench.gate.take_round import Taken
from dpbench.gate.tier1 import measure_times, verdict_of


@dataclass(frozen=True)
class Pool:
    """Recorded rounds of one condition, by benchmark."""

    ratios: Mapping[str, Sequence[RoundRatio]]
    round_s: float

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> "Pool":
        rounds = [trial for trial in trials if trial.rounds]
        names = {name for trial in rounds for name in trial.rounds}
        return cls(
            {name: [trial.rounds[name] for trial in rounds if name in trial.rounds] for name in sorted(names)},
            fmean(trial.duration_s for trial in rounds),
        )


def drawn_verdicts(
    benchmarks: Sequence[Benchmark],
    equal: Pool,
    slower: Pool | None,
    *,
    slower_in: Sequence[str],
    gates: int,
    alarm_rate: float,
    budget_s: float,
    seed: int,
) -> list[Verdict]:
    """Of so many gates; with `slower`, gate i has the slowdown in entry i of `slower_in`, over and over."""
    rng = Random(seed)
    verdicts = []
    for number in range(gates):
        planted = slower_in[number % len(slower_in)] if slower is not None else None
        draw = _Draw(equal, slower, planted, rng)
        found = measure_times(benchmarks, draw.take, alarm_rate=alarm_rate, budget_s=budget_s, clock=draw.clock)
        verdicts.append(verdict_of(found.judgements))
    return verdicts


class _Draw:
    """Answers as `take_round` does, in no time of ours."""

    def __init__(self, equal: Pool, slower: Pool | None, planted: str | None, rng: Random) -> None:
        self._equal, self._slower, self._planted, self._rng = equal, slower, planted, rng
        self._now_s = 0.0

    def take(self, benchmarks: Sequence[Benchmark], _: int) -> Taken:
        # A round with fewer benchmarks is a shorter one.
        self._now_s += self._equal.round_s * len(benchmarks) / len(self._equal.ratios)
        return Taken({each.name: self._rng.choice(self._pool(each.name).ratios[each.name]) for each in benchmarks})

    def clock(self) -> float:
        return self._now_s

    def _pool(self, name: str) -> Pool:
        return self._slower if self._slower is not None and name == self._planted else self._equal
