"""One verdict from the findings of all tiers, but those that are accepted or traded. Pure.

The settings file accepts a regression: `apply_accepted`. A measured time outvotes Python calls: `with_trades`. A
call costs time, but it is no work of a device:

    the upper bound of head / base is    and the calls grew by    then the counter is
    below 1                              any number               traded
    below 1.01                           at most 2 %              traded
    1.01 or more                         any number               worse

Operators, copies, bytes, kernels, waits and memory are never traded.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date
from fnmatch import fnmatchcase
from math import inf
from typing import TypeVar

from dpbench.cases.case import Case
from dpbench.gate.judgement import Accepted, CounterChange, Drift, TimeJudgement, Verdict
from dpbench.gate.settings import Benchmark
from dpbench.processes.messages import Timed

_MOST_NAMED = 3


def overall_verdict(
    counters: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    *,
    new: Sequence[str] = (),
    gap: str | None = None,
    compared: bool = True,
) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one line.

    SLOWER if any finding is a regression that is neither accepted nor traded. Else UNDECIDED if a benchmark is, and is
    not accepted, or if tier 0 has a `gap`. `new` are the names of benchmarks that base does not have.
    `compared` is False if there are no others.
    """
    if reasons := list(_regressions(counters, times, drifts)):
        return Verdict.SLOWER, "; ".join(reasons)
    undecided = [time.benchmark for time in times if time.verdict is Verdict.UNDECIDED and time.accepted is None]
    gaps = [f"not decided: {_names(undecided)}"] if undecided else []
    gaps += [gap] if gap else []
    if gaps:
        return Verdict.UNDECIDED, "; ".join(gaps)
    return Verdict.PASS, "; ".join(_passing(counters, times, drifts, new, compared=compared))


def _passing(
    counters: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    new: Sequence[str],
    *,
    compared: bool,
) -> Iterator[str]:
    accepted = sum(counter.accepted is not None for counter in counters)
    accepted += sum(each.accepted is not None for each in times) + sum(drift.accepted is not None for drift in drifts)
    if compared:
        yield f"nothing is slower but what is accepted ({accepted})" if accepted else "nothing is slower"
    if traded := sum(each.traded_for is not None for each in counters):
        yield f"traded: {traded} counters of Python calls are worse, and the step times are not"
    if new:
        yield f"new, with nothing to hold it against: {_names(new)}"


def _regressions(
    counters: Sequence[CounterChange], times: Sequence[TimeJudgement], drifts: Sequence[Drift]
) -> Iterator[str]:
    worse = [change for change in counters if change.is_worse and change.accepted is None and change.traded_for is None]
    if worse:
        of = dict.fromkeys(change.benchmark for change in worse)
        is_worse = "counter is worse" if len(worse) == 1 else "counters are worse"
        yield f"{len(worse)} {is_worse}, of {len(of)} case{'s'[: len(of) > 1]}"
    slower = [time.benchmark for time in times if time.verdict is Verdict.SLOWER and time.accepted is None]
    if slower:
        yield f"slower: {_names(slower)}"
    drifted = [drift.benchmark for drift in drifts if drift.accepted is None]
    if drifted:
        yield f"drifted: {_names(drifted)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


Finding = TypeVar("Finding", CounterChange, TimeJudgement, Drift)

_LEAST_DIGITS = 7


def apply_accepted(
    findings: Sequence[Finding], accepted: Sequence[Accepted], commits_in_range: Set[str], today: date
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return the same findings, with `accepted` set if an entry covers them, and notes.

    The `benchmark` of an entry must name or match the finding's. Its `revision` must be a commit of base..head
    (`commits_in_range`, full hashes). For a drift, the revision must be the commit that began it. The last
    day of an entry is `expires`. Verdicts stay: an accepted benchmark is still slower.

    There is one note for each entry that would cover a finding if it had not expired, or if its hash were longer.
    """
    notes: dict[str, None] = {}
    marked = [_mark(finding, accepted, commits_in_range, today, notes) for finding in findings]
    return tuple(marked), tuple(notes)


def _mark(
    finding: Finding, accepted: Sequence[Accepted], commits_in_range: Set[str], today: date, notes: dict[str, None]
) -> Finding:
    if not _can_be_accepted(finding):
        return finding
    reasons = list[str]()
    for entry in accepted:
        if not fnmatchcase(finding.benchmark, entry.benchmark):
            continue
        commits = commits_in_range if not isinstance(finding, Drift) else {finding.since_commit}
        named = _named(entry.revision, commits)
        where = f"accepted: {entry.benchmark!r} at {entry.revision}"
        if len(named) > 1:
            reasons.append(f"{where} is ambiguous: {len(named)} commits of base..head begin so; allowed: more digits")
        elif named and today > entry.expires:
            reasons.append(f"{where} expired on {entry.expires}")
        elif named:
            return finding.model_copy(update={"accepted": entry})
    notes.update(dict.fromkeys(reasons))
    return finding


def _can_be_accepted(found: CounterChange | TimeJudgement | Drift) -> bool:
    """Whether a finding is a regression, or may be one.

    UNDECIDED counts: the entry covers it if it is slower, and it needs no entry if it is not.
    """
    if isinstance(found, TimeJudgement):
        return found.verdict in (Verdict.SLOWER, Verdict.UNDECIDED)
    return not isinstance(found, CounterChange) or found.is_worse is not False


def _named(revision: str, commits: Set[str]) -> list[str]:
    if len(revision) < _LEAST_DIGITS:
        return []
    return [commit for commit in commits if commit.startswith(revision)]


_PROXY = ".python_calls"
_NOT_SLOWER, _MOST_GROWTH = 1.01, 0.02

TimedBy = Mapping[str, tuple[str, ...]]
"""By the name of a counted case, the benchmarks of tier 1 that time the same workload in the same mode."""


def timed_by(cases: Mapping[str, Case], benchmarks: Sequence[Benchmark]) -> TimedBy:
    """Return the timed benchmarks of each counted case, by the case's name."""
    return {
        name: tuple(benchmark.name for benchmark in benchmarks if _times(benchmark, case))
        for name, case in cases.items()
    }


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
