"""What a self-test says of the gate on this machine: how often each verdict, by condition. Pure."""

from collections.abc import Sequence
from math import exp
from statistics import fmean, median, stdev

from pydantic import BaseModel, ConfigDict

from dpbench.gate.judgement import FalseAlarms, Verdict
from dpbench.gate.self_test.record import one_core
from dpbench.gate.self_test.resample import Pool, drawn_verdicts
from dpbench.gate.self_test.trials import Condition, Trial
from dpbench.gate.settings import Settings
from dpbench.results.record import Environment
from dpbench.stats.binomial import clopper_pearson

DRAWN_GATES = 2000
_SEED = 0


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdicts(_Frozen):
    """How many gates said what."""

    slower: int = 0
    undecided: int = 0
    passed: int = 0

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
    """Of one benchmark's recorded rounds: the mean ratio of head to base, and standard deviations between rounds."""

    benchmark: str
    rounds: int
    ratio: float
    spread: float
    twin_spread: float


class Examined(_Frozen):
    """One condition. `drawn` gates are resampled from the recorded rounds, `whole` ones were run end to end.

    `found` are the whole gates whose slower benchmark is the one that was planted in.
    """

    condition: Condition
    spreads: tuple[Spread, ...]
    drawn: Verdicts
    whole: Verdicts
    found: int
    median_s: float | None
    longest_s: float | None


class SelfTest(_Frozen):
    """All conditions; `alarm_rate` is the suite's by design, `began` and `ended` when the trials were recorded."""

    tested: tuple[Examined, ...]
    alarm_rate: float
    budget_s: float
    began: str
    ended: str
    environment: Environment

    @property
    def false_alarms(self) -> FalseAlarms:
        """Of equal code with nothing else running."""
        equal = next(each for each in self.tested if each.condition is Condition.EQUAL)
        told = f"resampled from {equal.spreads[0].rounds} rounds of the self-test of {self.began[:10]}"
        upper = clopper_pearson(equal.drawn.slower, equal.drawn.gates)[1]
        return FalseAlarms(alarms=equal.drawn.slower, of=equal.drawn.gates, upper=upper, gates=told)


def result_of(trials: Sequence[Trial], settings: Settings, budget_s: float, gates: int = DRAWN_GATES) -> SelfTest:
    """Of trials that have rounds of every condition."""
    pools = {condition: Pool.of(_rounds(trials, condition)) for condition in Condition}

    def drawn(condition: Condition) -> Verdicts:
        verdicts = drawn_verdicts(
            settings.benchmarks,
            pools[Condition.EQUAL if condition.planted else condition],
            pools[condition] if condition.planted else None,
            slower_in=[benchmark.name for benchmark in one_core(settings)],
            gates=gates,
            alarm_rate=settings.alarm_rate,
            budget_s=budget_s,
            seed=_SEED,
        )
        return Verdicts.count(verdicts)

    return SelfTest(
        tested=tuple(_tested(condition, trials, pools[condition], drawn(condition)) for condition in Condition),
        alarm_rate=settings.alarm_rate,
        budget_s=budget_s,
        began=min(trial.started_at for trial in trials),
        ended=max(trial.started_at for trial in trials),
        environment=trials[-1].environment,
    )


def _tested(condition: Condition, trials: Sequence[Trial], pool: Pool, drawn: Verdicts) -> Examined:
    whole = [trial for trial in trials if trial.condition is condition and trial.gate is not None]
    durations_s = [trial.duration_s for trial in whole]
    return Examined(
        condition=condition,
        spreads=tuple(_spread(name, pool) for name in pool.ratios),
        drawn=drawn,
        whole=Verdicts.count([trial.verdict for trial in whole if trial.verdict is not None]),
        found=sum(_is_found(trial) for trial in whole),
        median_s=median(durations_s) if durations_s else None,
        longest_s=max(durations_s, default=None),
    )


def _rounds(trials: Sequence[Trial], condition: Condition) -> list[Trial]:
    return [trial for trial in trials if trial.condition is condition and trial.gate is None]


def _is_found(trial: Trial) -> bool:
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
