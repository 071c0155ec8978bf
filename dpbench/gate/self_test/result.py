"""The result of a self-test: how often the gate gave each verdict, by condition. Pure.

`results/gate/self-test-*.json` has these fields as they are called here.
"""

from collections.abc import Sequence
from datetime import datetime
from math import exp
from statistics import fmean, median, stdev
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dpbench.gate.judgement import FalseAlarms, Verdict
from dpbench.gate.self_test.record import slowed_in_turn
from dpbench.gate.self_test.resample import DrawnGate, Pool, drawn_gates
from dpbench.gate.self_test.trials import Condition, SelfTestTrial
from dpbench.gate.settings import Settings
from dpbench.results.record import Environment
from dpbench.stats.binomial import clopper_pearson

DRAWN_GATES = 2000
GROWTHS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1)
"""The slowdowns whose detection is drawn from the rounds of equal code. 0 counts false alarms."""
_SEED = 0


_Count = Annotated[int, Field(ge=0, le=10**9)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdicts(_Frozen):
    """The number of gates with each verdict."""

    slower: _Count = 0
    undecided: _Count = 0
    passed: _Count = 0

    @property
    def gates(self) -> int:
        return self.slower + self.undecided + self.passed

    @classmethod
    def count(cls, verdicts: Sequence[Verdict]) -> "Verdicts":
        return cls(
            slower=verdicts.count(Verdict.SLOWER),
            undecided=verdicts.count(Verdict.UNDECIDED),
            passed=verdicts.count(Verdict.PASS),
        )


class Spread(_Frozen):
    """The recorded rounds of one benchmark under one condition.

    `ratio` is the mean ratio of head to base. `spread` and `twin_spread` are standard deviations between rounds, of the
    logarithms of head's ratio and of the twin's.
    """

    benchmark: str
    rounds: int
    ratio: float
    spread: float
    twin_spread: float


class ConditionResult(_Frozen):
    """The gates and rounds of one condition.

    `drawn` gates are resampled from the recorded rounds, `whole` gates were run end to end. `found` counts the whole
    gates that called the slowed benchmark slower. Durations are of whole gates.
    """

    condition: Condition
    spreads: tuple[Spread, ...]
    drawn: Verdicts
    whole: Verdicts
    found: int
    median_s: float | None
    longest_s: float | None


class Power(_Frozen):
    """Drawn gates of a head that is slower by the share `growth`, in rounds of equal code under `condition`."""

    condition: Condition
    growth: float
    drawn: Verdicts
    median_s: float


class SelfTest(_Frozen):
    """All conditions.

    `alarm_rate` is the false-alarm rate of a suite that the rule allows by design. `began` and `ended` are the times
    of the first and of the last trial.
    """

    tested: tuple[ConditionResult, ...]
    power: tuple[Power, ...] = ()
    alarm_rate: float
    budget_s: float
    began: str
    ended: str
    environment: Environment

    @model_validator(mode="after")
    def _has_false_alarms(self) -> Self:
        equal = [each for each in self.tested if each.condition is Condition.EQUAL]
        if len(equal) != 1 or not equal[0].spreads or not equal[0].drawn.gates:
            raise ValueError(f"tested needs one condition {str(Condition.EQUAL)!r}, with spreads and drawn gates")
        datetime.fromisoformat(self.began)
        return self

    @property
    def false_alarms(self) -> FalseAlarms:
        """The drawn gates of equal code while nothing else ran."""
        equal = next(each for each in self.tested if each.condition is Condition.EQUAL)
        counted = f"resampled from {equal.spreads[0].rounds} rounds of the self-test of {self.began[:10]}"
        upper = clopper_pearson(equal.drawn.slower, equal.drawn.gates)[1]
        return FalseAlarms(alarms=equal.drawn.slower, of=equal.drawn.gates, upper=upper, gates=counted)


def result_of(
    trials: Sequence[SelfTestTrial], settings: Settings, budget_s: float, gates: int = DRAWN_GATES
) -> SelfTest:
    """Draw `gates` gates for each condition and count all verdicts.

    `trials` need rounds of every condition.
    """
    pools = {condition: Pool.of(_rounds(trials, condition)) for condition in Condition}

    def drawn(condition: Condition) -> Verdicts:
        equal = pools[Condition.EQUAL if condition.slowdown else condition]
        slower = pools[condition] if condition.slowdown else None
        return _counted(_drawn(equal, slower, settings, slowdown=condition.slowdown, budget_s=budget_s, gates=gates))

    return SelfTest(
        tested=tuple(
            _condition_result(condition, trials, pools[condition], drawn(condition)) for condition in Condition
        ),
        power=power_of(trials, settings, budget_s, gates),
        alarm_rate=settings.alarm_rate,
        budget_s=budget_s,
        began=min(trial.started_at for trial in trials),
        ended=max(trial.started_at for trial in trials),
        environment=trials[-1].environment,
    )


def power_of(trials: Sequence[SelfTestTrial], settings: Settings, budget_s: float, gates: int) -> tuple[Power, ...]:
    """Return how often each of `GROWTHS` is found, undisturbed and with a core loaded."""
    found = []
    for condition in (Condition.EQUAL, Condition.LOADED):
        pool = Pool.of(_rounds(trials, condition))
        for growth in GROWTHS:
            drawn = _drawn(pool, pool.with_growth(growth), settings, slowdown=growth, budget_s=budget_s, gates=gates)
            took_s = median(each.duration_s for each in drawn)
            found.append(Power(condition=condition, growth=growth, drawn=_counted(drawn), median_s=took_s))
    return tuple(found)


def _drawn(
    equal: Pool, slower: Pool | None, settings: Settings, *, slowdown: float, budget_s: float, gates: int
) -> list[DrawnGate]:
    return drawn_gates(
        settings.benchmarks,
        equal,
        slower,
        slower_in=[benchmark.name for benchmark in slowed_in_turn(settings, slowdown)],
        gates=gates,
        alarm_rate=settings.alarm_rate,
        budget_s=budget_s,
        seed=_SEED,
    )


def _counted(drawn: Sequence[DrawnGate]) -> Verdicts:
    return Verdicts.count([each.verdict for each in drawn])


def _condition_result(
    condition: Condition, trials: Sequence[SelfTestTrial], pool: Pool, drawn: Verdicts
) -> ConditionResult:
    whole = [trial for trial in trials if trial.condition is condition and trial.gate is not None]
    durations_s = [trial.duration_s for trial in whole]
    return ConditionResult(
        condition=condition,
        spreads=tuple(_spread(name, pool) for name in pool.ratios),
        drawn=drawn,
        whole=Verdicts.count([trial.verdict for trial in whole if trial.verdict is not None]),
        found=sum(_is_found(trial) for trial in whole),
        median_s=median(durations_s) if durations_s else None,
        longest_s=max(durations_s, default=None),
    )


def _rounds(trials: Sequence[SelfTestTrial], condition: Condition) -> list[SelfTestTrial]:
    return [trial for trial in trials if trial.condition is condition and trial.gate is None]


def _is_found(trial: SelfTestTrial) -> bool:
    slower = [each.benchmark for each in trial.gate or () if each.verdict is Verdict.SLOWER]
    return trial.planted_in in slower


def _spread(name: str, pool: Pool) -> Spread:
    ratios = pool.ratios[name]
    return Spread(
        benchmark=name,
        rounds=len(ratios),
        ratio=exp(fmean(each.contrast for each in ratios)),
        spread=stdev([each.contrast for each in ratios]),
        twin_spread=stdev([each.twin for each in ratios]),
    )
