"""Make trials of a self-test by hand."""

from random import Random

from dpbench.gate.judgement import Verdict
from dpbench.gate.self_test.trials import Condition, SelfTestTrial
from dpbench.results.record import Environment
from tests.gate.making_rounds import noisy, ratio
from tests.report.gate.making_gate import time
from tests.results.making import ENVIRONMENT


def round_trial(
    number: int, condition: Condition = Condition.EQUAL, duration_s: float = 5.0, **contrasts: float
) -> SelfTestTrial:
    return SelfTestTrial(
        condition=condition,
        number=number,
        started_at=f"2026-11-21T12:00:{number:02}+00:00",
        duration_s=duration_s,
        rounds={name: ratio(contrast) for name, contrast in contrasts.items()},
        environment=ENVIRONMENT,
    )


def gate_trial(
    number: int, condition: Condition, verdict: str, planted_in: str | None, slower: str | None
) -> SelfTestTrial:
    """A whole gate of the benchmarks a and b."""
    return SelfTestTrial(
        condition=condition,
        number=number,
        started_at=f"2026-11-21T13:00:{number:02}+00:00",
        duration_s=30.0 + number,
        gate=tuple(time(name, "slower" if name == slower else "pass") for name in "ab"),
        verdict=Verdict(verdict),
        planted_in=planted_in,
        environment=ENVIRONMENT,
    )


def recorded(rounds: int = 30, environment: Environment = ENVIRONMENT) -> list[SelfTestTrial]:
    """Rounds of the benchmarks a and b under all conditions, with a spread of 0.5 %."""
    rng = Random(0)
    return [
        SelfTestTrial(
            condition=condition,
            number=number,
            started_at=f"2026-11-21T12:00:{number:02}+00:00",
            duration_s=5.0,
            rounds={name: noisy(rng, condition.slowdown, 0.005)() for name in "ab"},
            environment=environment,
        )
        for number in range(rounds)
        for condition in Condition
    ]
