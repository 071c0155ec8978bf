"""One verdict from the findings of all tiers, but those that are accepted or traded. Pure.

The settings file accepts a regression: `apply_accepted`. A measured time outvotes counters: `with_trades`. A Python
call costs time, but it is no work of a device. `_MOST_GROWTH` is 2 %:

    worse in a case that is timed       the upper bound of head / base      and it grew by      then it is
    Python calls or lines               below 1                             any number          traded
    Python calls or lines               below 1.01                          at most 2 %         traded

    worse in any case                   all benchmarks pass, and            and it grew by
    Python calls, lines, peak memory    one is faster                       at most 2 %         traded
    any counter that falls as much      one is faster                       at most 2 %         traded
    in other cases

Memory that steps keep is never traded. Without times that decide, such counters beside better ones leave the verdict
undecided. What is tolerated (`tolerated.py`) is noted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date
from fnmatch import fnmatchcase
from math import inf
from typing import TypeVar

from dpbench.cases.case import Case
from dpbench.gate.judgement import Accepted, Blame, CounterChange, Drift, Quantity, TimeJudgement, Verdict
from dpbench.gate.settings import Benchmark
from dpbench.gate.tolerated import is_memory, is_peak_memory
from dpbench.processes.messages import Timed

_MOST_NAMED = 3
_OF: Mapping[Quantity, str] = {"median": "", "mean": " in the mean", "later": " in later steps"}
_PASSING = (Verdict.PASS, Verdict.FASTER)


def overall_verdict(
    counters: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    *,
    blames: Sequence[Blame] = (),
    counted_cases: int = 0,
    new: Sequence[str] = (),
    gap: str | None = None,
    is_timed: bool = True,
    compared: bool = True,
) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one line: what, by how much, and where.

    SLOWER if any finding is a regression that is neither accepted nor traded. Else UNDECIDED if a benchmark is, and is
    not accepted, or if tier 0 has a `gap`. Without times (`is_timed`), or if these are undecided, counters that times
    could trade are UNDECIDED.
    `new` are the names of benchmarks that base does not have. `compared` is False if there are no others. Without
    anything compared or new the verdict is UNDECIDED.
    """
    worse = [change for change in counters if _is_open(change)]
    undecided = [time for time in times if time.verdict is Verdict.UNDECIDED and time.accepted is None]
    can_tell = "more rounds can tell" if is_timed else "step times can tell: run with --tiers 0,1"
    open_question = _open_question(worse, counters, can_tell) if undecided or not is_timed else None
    if reasons := list(_regressions([] if open_question else worse, times, drifts, blames, counted_cases)):
        return Verdict.SLOWER, "; ".join(reasons)
    gaps = [_names([_between(time) for time in undecided])] if undecided else []
    gaps += [reason for reason in (open_question, gap, None if compared or new else "nothing was compared") if reason]
    if gaps:
        return Verdict.UNDECIDED, "; ".join(gaps)
    untimed = counted_cases and not is_timed
    what = "no time was measured, and no counter is worse" if untimed else "nothing is slower"
    return Verdict.PASS, "; ".join(_passing(counters, times, drifts, new, what if compared else ""))


def is_only_memory(counters: Sequence[CounterChange], times: Sequence[TimeJudgement], drifts: Sequence[Drift]) -> bool:
    """Whether head only needs more memory: no time and no other counter is worse."""
    slower = [time for time in times if time.verdict is Verdict.SLOWER and time.accepted is None]
    drifted = [drift for drift in drifts if drift.accepted is None]
    worse = [change for change in counters if _is_open(change)]
    return bool(worse) and not slower and not drifted and all(map(is_memory, worse))


def named(what: str, names: Sequence[str]) -> str | None:
    """Return ``2 left out: a, b`` for `what` and the names, or None if there are none. Pure."""
    return f"{len(names)} {what}: {_names(names)}" if names else None


def _is_open(change: CounterChange) -> bool:
    return change.is_worse is True and not (change.accepted or change.tolerated or change.traded_for)


def _passing(
    counters: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    new: Sequence[str],
    what: str,
) -> Iterator[str]:
    faster = [time for time in times if time.verdict is Verdict.FASTER]
    traded = [each for each in counters if each.traded_for is not None]
    if faster:
        yield f"faster: {_names([_by_how_much(time) for time in faster])}{_with_more(traded)}"
    accepted = sum(counter.accepted is not None for counter in counters)
    accepted += sum(each.accepted is not None for each in times) + sum(drift.accepted is not None for drift in drifts)
    if what:
        yield f"{what} but what is accepted ({accepted})" if accepted else what
    if traded and not faster:
        yield f"the step times are not longer{_with_more(traded)}"
    tolerated = [each for each in counters if each.tolerated and each.traded_for is None and each.accepted is None]
    if tolerated:
        yield f"tolerated{_with_more(tolerated)}"
    if new:
        yield f"new, with nothing to hold it against: {_names(new)}"


def _with_more(traded: Sequence[CounterChange]) -> str:
    """``, with 2 Python calls more in forward``: the largest of each counter that was traded."""
    most: dict[str, float] = {}
    for change in traded:
        most[change.counter] = max(_more(change), most.get(change.counter, 0))
    return f", with {_names([f'{more:,} more in {counter}' for counter, more in most.items()])}" if most else ""


def _regressions(
    worse: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    blames: Sequence[Blame],
    counted_cases: int,
) -> Iterator[str]:
    slower = [time for time in times if time.verdict is Verdict.SLOWER and time.accepted is None]
    if slower:
        yield _names([_by_how_much(time) for time in slower])
    for found, word in (
        ([change for change in worse if not is_memory(change)], "worse"),
        ([change for change in worse if is_memory(change)], "larger, of memory,"),
    ):
        if found:
            of = list(dict.fromkeys(change.benchmark for change in found))
            number = "1 counter is" if len(found) == 1 else f"{len(found)} counters are"
            name = f" ({of[0]})" if len(of) == 1 else ""
            cases = f"{len(of)} of {max(counted_cases, len(of))} counted cases{name}"
            yield f"{number} {word} in {cases}: {_first(found, blames)}"
    drifted = [drift.benchmark for drift in drifts if drift.accepted is None]
    if drifted:
        yield f"drifted: {_names(drifted)}"


def _by_how_much(time: TimeJudgement) -> str:
    """``my_step by 5.2 %``, of the ratio that decided."""
    ratio, of = time.decisive, _OF[time.quantity]
    return time.benchmark if ratio is None else f"{time.benchmark} by {100 * abs(ratio.value - 1):.1f} %{of}"


def _between(time: TimeJudgement) -> str:
    """``my_step by -0.8 % to +3.1 %``: the interval of the ratio that left it undecided."""
    ratio, of = time.decisive, _OF[time.quantity]
    if ratio is None:
        return f"{time.benchmark} not measured"
    return f"{time.benchmark} by {100 * (ratio.low - 1):+.1f} % to {100 * (ratio.high - 1):+.1f} %{of}"


def _first(worse: Sequence[CounterChange], blames: Sequence[Blame]) -> str:
    """Return the first worse counter whose code is known, with its code; else the first one."""
    by_counter = {(blame.benchmark, blame.counter): blame.causes for blame in blames}
    for change in worse:
        for cause in by_counter.get((change.benchmark, change.counter), ()):
            if cause.head > cause.base:
                return f"{_change(change)}, in {cause.function} at {cause.file}:{cause.lines[0]}"
    return _change(worse[0])


def _change(change: CounterChange) -> str:
    return f"{change.counter} {_count(change.base)} -> {_count(change.head)}"


def _count(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


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


_PROXY = re.compile(r"\w+\.python_(calls|lines)(\.growth)?")
_NEVER_TRADED = re.compile(r"kept\..*|wrapper\..*|auto\..*|dependencies\..*|value .*|.*host_wait")
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
    """Return the same changes, with `traded_for` set for traded counters.

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
        if change.traded_for and _more(change) > _more(seen.get(change.counter)):
            seen[change.counter] = change
    second = [
        _traded_with(change, seen.get(change.counter)) if not timed.get(change.benchmark) else change
        for change in first
    ]
    return tuple(_traded_for_faster(change, times, second) for change in second)


def _traded(change: CounterChange, times: Sequence[TimeJudgement]) -> CounterChange:
    if not _is_open_proxy(change) or not times or not all(_allows(time, change) for time in times):
        return change
    return _for(change, [time.benchmark for time in times])


def _traded_with(change: CounterChange, other: CounterChange | None) -> CounterChange:
    if other is None or not _is_open_proxy(change) or _more(change) > _more(other):
        return change
    return change.model_copy(update={"traded_for": other.traded_for})


def _traded_for_faster(
    change: CounterChange, times: Sequence[TimeJudgement], changes: Sequence[CounterChange]
) -> CounterChange:
    faster = [time.benchmark for time in times if time.verdict is Verdict.FASTER]
    all_pass = all(time.verdict in _PASSING for time in times)
    is_peak = _is_open(change) and is_peak_memory(change)
    can = is_peak or _is_open_proxy(change) or _falls_elsewhere(change, changes)
    return _for(change, faster) if faster and all_pass and can and _growth(change) <= _MOST_GROWTH else change


def _falls_elsewhere(change: CounterChange, changes: Sequence[CounterChange]) -> bool:
    """Whether a worse counter falls in other cases by as much as it grows, and may be traded."""
    if not _is_open(change) or _NEVER_TRADED.fullmatch(change.counter):
        return False
    return sum(_more(each) for each in changes if each.counter == change.counter) <= 0


def _open_question(worse: Sequence[CounterChange], changes: Sequence[CounterChange], can_tell: str) -> str | None:
    """Say which worse counters only times can judge: other counters are better. None if one of them is surely worse."""
    better = sum(change.is_worse is False for change in changes)
    if not worse or not better:
        return None
    if not all(_is_open_proxy(change) or _falls_elsewhere(change, changes) for change in worse):
        return None
    named = _names([f"{change.counter} {_more(change):+,} in {change.benchmark}" for change in worse])
    return f"{named}, and {better} counters are better; only {can_tell}"


def _for(change: CounterChange, benchmarks: Sequence[str]) -> CounterChange:
    return change.model_copy(update={"traded_for": ", ".join(benchmarks)})


def _is_open_proxy(change: CounterChange) -> bool:
    return _PROXY.fullmatch(change.counter) is not None and _is_open(change)


def _allows(time: TimeJudgement, change: CounterChange) -> bool:
    if time.verdict not in _PASSING or time.ratio is None:
        return False
    return time.ratio.high < 1 or (time.ratio.high < _NOT_SLOWER and _growth(change) <= _MOST_GROWTH)


def _growth(change: CounterChange) -> float:
    """The growth as a share of base's count."""
    return _more(change) / change.base if change.base else inf


def _more(change: CounterChange | None) -> float:
    return 0 if change is None else (change.head or 0) - (change.base or 0)
