"""What a gate found of each benchmark, as one verdict and its reasons: for forms that have no tables."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpbench.gate.judgement import Accepted, CounterChange, Drift, Judgement, TimeJudgement, Verdict
from dpbench.report.gate_tables import count, direction, slowest_first, worst_first
from dpbench.report.gate_words import acceptance, growth_between, measured, one_line
from dpbench.report.units import number, time_unit


@dataclass(frozen=True)
class Finding:
    """Every text is one line. What is accepted does not count in `verdict`. `step_time_s` is head's, else None."""

    tier: int
    benchmark: str
    verdict: Verdict
    is_accepted: bool
    what: str
    message: str
    details: tuple[str, ...] = ()
    step_time_s: float | None = None


def findings(judgement: Judgement) -> tuple[Finding, ...]:
    """Of tier 0 those benchmarks alone of which a counter changed; the worst first in each tier."""
    times = (_time(time) for time in slowest_first(judgement.times))
    return (*_counters(judgement), *times, *map(_drift, judgement.drifts))


def _counters(judgement: Judgement) -> Iterator[Finding]:
    changes = worst_first(judgement.counters)
    for benchmark in dict.fromkeys(change.benchmark for change in changes):
        group = [change for change in changes if change.benchmark == benchmark]
        worse = [change for change in group if change.is_worse and change.accepted is None]
        accepted = [change for change in group if change.accepted is not None]
        others = len(group) - len(worse) - len(accepted)
        yield Finding(
            tier=0,
            benchmark=one_line(benchmark),
            verdict=Verdict.SLOWER if worse else Verdict.PASS,
            is_accepted=bool(accepted),
            what="counters",
            message=f"{len(worse)} worse, {len(accepted)} accepted, {others} otherwise changed; {_change(group[0])}",
            details=tuple(map(_change, group)),
        )


def _change(change: CounterChange) -> str:
    text = f"{change.counter}: {count(change.base)} -> {count(change.head)} ({direction(change)})"
    return one_line(text) + _accepted(change.accepted)


def _time(time: TimeJudgement) -> Finding:
    is_accepted = time.accepted is not None
    return Finding(
        tier=1,
        benchmark=one_line(time.benchmark),
        verdict=Verdict.PASS if is_accepted and time.verdict is Verdict.SLOWER else time.verdict,
        is_accepted=is_accepted,
        what="step time",
        message=f"{one_line(time.why)}; {measured(time)}{_accepted(time.accepted)}",
        step_time_s=time.head_step_s,
    )


def _drift(drift: Drift) -> Finding:
    unit_s, unit = time_unit([time_s for time_s in (drift.before_s, drift.after_s) if time_s])
    message = (
        f"{number(drift.before_s / unit_s)} -> {number(drift.after_s / unit_s)} {unit}, "
        f"{growth_between(drift.before_s, drift.after_s)} "
        f"since {drift.since_commit[:10]} of {drift.since}, seen in {drift.points:,} points"
    )
    is_accepted = drift.accepted is not None
    return Finding(
        tier=2,
        benchmark=one_line(drift.benchmark),
        verdict=Verdict.PASS if is_accepted else Verdict.SLOWER,
        is_accepted=is_accepted,
        what="drift",
        message=one_line(message) + _accepted(drift.accepted),
        step_time_s=drift.after_s,
    )


def _accepted(accepted: Accepted | None) -> str:
    return "" if accepted is None else f"; {acceptance(accepted)}"
