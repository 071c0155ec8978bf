"""Draw gates from recorded rounds, by the gate's own loop and rules. No process runs.

Each round of a drawn gate is a recorded round, drawn with replacement and for each benchmark apart. A slowdown is in
one benchmark; the others are equal. A simulated clock spends the budget by the recorded durations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from random import Random
from statistics import fmean

from dpbench.gate.judgement import Verdict
from dpbench.gate.ratio import RoundRatio
from dpbench.gate.self_test.trials import SelfTestTrial
from dpbench.gate.settings import Benchmark
from dpbench.gate.take_round import SuiteRound
from dpbench.gate.tier1 import measure_times, verdict_of


@dataclass(frozen=True)
class Pool:
    """The recorded rounds of one condition by benchmark, and their mean duration in seconds."""

    ratios: Mapping[str, Sequence[RoundRatio]]
    round_s: float

    @classmethod
    def of(cls, trials: Sequence[SelfTestTrial]) -> "Pool":
        rounds = [trial for trial in trials if trial.rounds]
        names = {name for trial in rounds for name in trial.rounds}
        return cls(
            {name: [trial.rounds[name] for trial in rounds if name in trial.rounds] for name in sorted(names)},
            fmean(trial.duration_s for trial in rounds),
        )

    def with_growth(self, growth: float) -> "Pool":
        """Return the same rounds, with a head that is slower by the share `growth` on average."""
        return Pool({name: _shifted(ratios, log1p(growth)) for name, ratios in self.ratios.items()}, self.round_s)


def _shifted(ratios: Sequence[RoundRatio], to: float) -> list[RoundRatio]:
    by = to - fmean(each.contrast for each in ratios)
    return [each.model_copy(update={"contrast": each.contrast + by}) for each in ratios]


@dataclass(frozen=True)
class DrawnGate:
    """The verdict of a drawn gate, and how long it would have taken."""

    verdict: Verdict
    duration_s: float


def drawn_gates(
    benchmarks: Sequence[Benchmark],
    equal: Pool,
    slower: Pool | None,
    *,
    slower_in: Sequence[str],
    gates: int,
    alarm_rate: float,
    budget_s: float,
    seed: int,
) -> list[DrawnGate]:
    """Return `gates` drawn gates.

    If `slower` is given, gate i has the slowdown in the benchmark at i modulo the length of `slower_in`.
    """
    rng = Random(seed)
    drawn = []
    for number in range(gates):
        slowed = slower_in[number % len(slower_in)] if slower is not None else None
        draw = _Draw(equal, slower, slowed, rng)
        found = measure_times(benchmarks, draw.take, alarm_rate=alarm_rate, budget_s=budget_s, clock=draw.clock)
        drawn.append(DrawnGate(verdict_of(found.judgements), draw.clock()))
    return drawn


class _Draw:
    """Takes recorded rounds in the place of `take_round`, and simulates the clock.

    The benchmark `slowed` draws from `slower`, all others from `equal`.
    """

    def __init__(self, equal: Pool, slower: Pool | None, slowed: str | None, rng: Random) -> None:
        self._equal, self._slower, self._slowed, self._rng = equal, slower, slowed, rng
        self._now_s = 0.0

    def take(self, benchmarks: Sequence[Benchmark], _: int) -> SuiteRound:
        # A round of fewer benchmarks is shorter in proportion.
        self._now_s += self._equal.round_s * len(benchmarks) / len(self._equal.ratios)
        return SuiteRound({each.name: self._rng.choice(self._pool(each.name).ratios[each.name]) for each in benchmarks})

    def clock(self) -> float:
        return self._now_s

    def _pool(self, name: str) -> Pool:
        return self._slower if self._slower is not None and name == self._slowed else self._equal
