"""Decide which Python calls are traded for a measured time. Pure.

A Python call is a proxy: it costs time, but it is no work of a device. So a measured time outvotes it:

    the upper bound of head / base is    and the calls grew by    then the counter is
    below 1                              any number               traded
    below 1.01                           at most 2 %              traded
    1.01 or more                         any number               worse

Operators, copies, bytes, kernels, waits and memory are never traded.
"""

from collections.abc import Mapping, Sequence
from math import inf

from dpbench.gate.judgement import CounterChange, TimeJudgement, Verdict
from dpbench.gate.settings import Benchmark
from dpbench.run.messages import Timed
from dpbench.sweep.case import Case

_PROXY = ".python_calls"
_NOT_SLOWER, _MOST_GROWTH = 1.01, 0.02

TimedBy = Mapping[str, tuple[str, ...]]
"""By the name of a counted case, the benchmarks of tier 1 that time the same workload in the same mode."""


def timed_by(cases: Mapping[str, Case], benchmarks: Sequence[Benchmark]) -> TimedBy:
    """Return the timed benchmarks of each counted case, by the case's name."""
    return {name: tuple(each.name for each in benchmarks if _times(each, case)) for name, case in cases.items()}


def _times(benchmark: Benchmark, case: Case) -> bool:
    return benchmark.timed is Timed.STEP and (benchmark.workload, benchmark.mode) == (case.workload, case.mode)


def with_trades(
    changes: Sequence[CounterChange], times: Sequence[TimeJudgement], timed: TimedBy
) -> tuple[CounterChange, ...]:
    """Return the same changes, with `traded_for` set for traded Python calls.

    All timed benchmarks of a case must allow the trade. A case that no benchmark times is traded too if a traded case
    grew by as many calls in the same counter: then the times have seen these calls.
    """
    by_name = {time.benchmark: time for time in times}
    first = [
        _traded(change, [by_name[name] for name in timed.get(change.benchmark, ()) if name in by_name])
        for change in changes
    ]
    seen: dict[str, CounterChange] = {}
    for change in first:
        if change.traded_for and _calls_more(change) > _calls_more(seen.get(change.counter)):
            seen[change.counter] = change
    return tuple(
        _traded_with(change, seen.get(change.counter)) if not timed.get(change.benchmark) else change
        for change in first
    )


def _traded(change: CounterChange, times: Sequence[TimeJudgement]) -> CounterChange:
    if not _is_open_proxy(change) or not times or not all(_allows(time, change) for time in times):
        return change
    return change.model_copy(update={"traded_for": ", ".join(time.benchmark for time in times)})


def _traded_with(change: CounterChange, other: CounterChange | None) -> CounterChange:
    if other is None or not _is_open_proxy(change) or _calls_more(change) > _calls_more(other):
        return change
    return change.model_copy(update={"traded_for": other.traded_for})


def _is_open_proxy(change: CounterChange) -> bool:
    return change.counter.endswith(_PROXY) and change.is_worse is True and change.accepted is None


def _allows(time: TimeJudgement, change: CounterChange) -> bool:
    if time.verdict is not Verdict.PASS or time.ratio is None:
        return False
    return time.ratio.high < 1 or (time.ratio.high < _NOT_SLOWER and _growth(change) <= _MOST_GROWTH)


def _growth(change: CounterChange) -> float:
    """The growth as a share of base's calls."""
    return _calls_more(change) / change.base if change.base else inf


def _calls_more(change: CounterChange | None) -> int:
    return 0 if change is None else (change.head or 0) - (change.base or 0)
