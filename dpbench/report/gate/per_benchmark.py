"""One finding for each benchmark, with verdict and reasons: for the forms without tables."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import TypeVar

from dpbench.gate.judgement import Accepted, CounterChange, Drift, Judgement, TimeJudgement, Verdict
from dpbench.report.gate.tables import count, direction, slowest_first, worst_first
from dpbench.report.gate.what_changed import cause_lines
from dpbench.report.gate.wording import acceptance, growth_between, measured
from dpbench.report.units import number, time_unit
from dpbench.sweep.outside import one_line

Changed = TypeVar("Changed", CounterChange, Drift)


@dataclass(frozen=True)
class BenchmarkFinding:
    """What one tier found of one benchmark. Every text is one line.

    `verdict` is PASS for an accepted regression; `is_notable` then marks it for a notice. `what` names the kind of
    finding, such as ``step time slower``. `step_time_s` is head's, or None if there is none.
    """

    tier: int
    benchmark: str
    verdict: Verdict
    what: str
    message: str
    is_notable: bool = False
    details: tuple[str, ...] = ()
    step_time_s: float | None = None


def findings(judgement: Judgement) -> tuple[BenchmarkFinding, ...]:
    """Return one finding for each tier and benchmark, the worst first.

    Tiers 0 and 2 have findings only for benchmarks that changed. A drift passes if the whole judgement passes.
    """
    times = (_time(time) for time in slowest_first(judgement.times))
    return (*_counters(judgement), *times, *_drifts(judgement))


def _counters(judgement: Judgement) -> Iterator[BenchmarkFinding]:
    for benchmark, group in _by_benchmark(worst_first(judgement.counters)):
        open_ones = [change for change in group if change.accepted is None]
        worse = [change for change in open_ones if change.is_worse and change.traded_for is None]
        accepted = [change for change in group if change.accepted is not None]
        traded = [change for change in open_ones if change.traded_for is not None]
        others = len(group) - len(worse) - len(accepted) - len(traded)
        yield BenchmarkFinding(
            tier=0,
            benchmark=benchmark,
            verdict=Verdict.SLOWER if worse else Verdict.PASS,
            what=f"counters {'worse' if worse else 'accepted' if accepted else 'traded' if traded else 'changed'}",
            message=f"{_numbers(worse, accepted, traded)}, {others} otherwise changed; {_change(group[0])}",
            is_notable=bool(accepted or traded),
            details=tuple(line for change in group for line in (_change(change), *_causes(judgement, change))),
        )


def _numbers(worse: Sized, accepted: Sized, traded: Sized) -> str:
    return f"{len(worse)} worse, {len(accepted)} accepted" + (f", {len(traded)} traded" if traded else "")


def _change(change: CounterChange) -> str:
    text = f"{change.counter}: {count(change.base)} -> {count(change.head)} ({direction(change)})"
    traded = f"; the time of {change.traded_for} is not longer" if change.traded_for else ""
    return one_line(text + traded) + _accepted(change.accepted)


def _causes(judgement: Judgement, change: CounterChange) -> Iterator[str]:
    for blame in judgement.blames:
        if (blame.benchmark, blame.counter) == (change.benchmark, change.counter):
            yield from (f"    {line}" for line in cause_lines(blame))


def _time(time: TimeJudgement) -> BenchmarkFinding:
    is_accepted = time.accepted is not None and time.verdict is not Verdict.BROKEN
    return BenchmarkFinding(
        tier=1,
        benchmark=one_line(time.benchmark),
        verdict=Verdict.PASS if is_accepted else time.verdict,
        what=f"step time {time.verdict}{', accepted' if is_accepted else ''}",
        message=f"{one_line(time.why)}; {measured(time)}{_accepted(time.accepted)}",
        is_notable=is_accepted,
        step_time_s=time.head_step_s,
    )


def _drifts(judgement: Judgement) -> Iterator[BenchmarkFinding]:
    latest_first = tuple(reversed(judgement.drifts))
    for benchmark, group in _by_benchmark(latest_first):
        is_open = any(drift.accepted is None for drift in group)
        yield BenchmarkFinding(
            tier=2,
            benchmark=benchmark,
            verdict=Verdict.SLOWER if is_open and judgement.verdict is not Verdict.PASS else Verdict.PASS,
            what="drift" if is_open else "drift accepted",
            message=_drift(group[0]),
            is_notable=True,
            details=tuple(map(_drift, group[1:])),
            step_time_s=group[0].after_s,
        )


def _drift(drift: Drift) -> str:
    unit_s, unit = time_unit([time_s for time_s in (drift.before_s, drift.after_s) if time_s])
    text = (
        f"{number(drift.before_s / unit_s)} -> {number(drift.after_s / unit_s)} {unit}, "
        f"{growth_between(drift.before_s, drift.after_s)} "
        f"since {drift.since_commit[:10]} of {drift.since}, seen in {drift.points:,} points"
    )
    return one_line(text) + _accepted(drift.accepted)


def _by_benchmark(found: Iterable[Changed]) -> Iterator[tuple[str, list[Changed]]]:
    groups: dict[str, list[Changed]] = defaultdict(list)
    for each in found:
        groups[each.benchmark].append(each)
    yield from ((one_line(benchmark), group) for benchmark, group in groups.items())


def _accepted(accepted: Accepted | None) -> str:
    return "" if accepted is None else f"; {acceptance(accepted)}"
