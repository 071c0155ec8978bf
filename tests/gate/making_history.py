"""Make lines and series of a history by hand."""

from collections.abc import Sequence

from dpbench.gate.history import HistoryLine, Point, Series, StepTimes
from dpbench.gate.judgement import Verdict
from dpbench.records.record import Environment
from tests.records.making import ENVIRONMENT

DAY_S = 86400.0


def times(name: str, base_s: float, head_s: float, **fields: object) -> StepTimes:
    defaults = {"case": f"case of {name}", "rounds": 5, "twin_alarmed": False}
    data = {"name": name, "base_step_s": base_s, "head_step_s": head_s, "ratio": head_s / base_s, **defaults, **fields}
    return StepTimes.model_validate(data)


def line(base: str, head: str | None, *benchmarks: StepTimes, environment: Environment = ENVIRONMENT) -> HistoryLine:
    return HistoryLine(
        started_at="2026-11-21T12:00:00Z",
        base_commit=base,
        head_commit=head,
        verdict=Verdict.PASS,
        environment=environment,
        benchmarks=benchmarks,
    )


def series(times_s: Sequence[float], benchmark: str = "wide") -> Series:
    """One commit a day, from 1970-01-01."""
    points = [Point(f"commit {day}", day * DAY_S, float(step_s)) for day, step_s in enumerate(times_s)]
    return Series(benchmark, tuple(points))
