"""One verdict from the findings of all tiers, but those that are accepted, tolerated or traded. Pure but for tier 2.

The settings file accepts a regression, and tolerates a little work of the host and a little memory. A measured time
outvotes counters: a Python call costs time, but it is no work of a device. `_MOST_GROWTH` is 2 %:

    worse in a case that is timed       the upper bound of head / base      and it grew by      then it is
    Python calls or lines               below 1                             any number          traded
    Python calls or lines               below 1.01                          at most 2 %         traded

    worse in any case                   all benchmarks pass, and            and it grew by
    Python calls, lines, peak memory    one is faster                       at most 2 %         traded
    any counter that falls as much      one is faster                       at most 2 %         traded
    in other cases

Memory that steps keep is never traded.
"""

import time
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime
from fnmatch import fnmatchcase
from math import inf
from typing import TypeVar

from dpbench.cases.case import Case
from dpbench.engine.messages import Timed
from dpbench.errors import GateError
from dpbench.gate import words
from dpbench.gate.benchmarks import Benchmarks
from dpbench.gate.count_sides import Counters
from dpbench.gate.counters import Trade, is_tolerated, kind_of
from dpbench.gate.history import drifts, measured_false_alarms, read_records, series_of
from dpbench.gate.judgement import (
    Accepted,
    Blame,
    CounterChange,
    Drift,
    Judgement,
    State,
    TimeJudgement,
    Verdict,
)
from dpbench.gate.prepare import Prepared
from dpbench.gate.settings import Benchmark, Tolerances
from dpbench.gate.time_sides import Times, budget_that_decides
from dpbench.records.record import Environment

Finding = TypeVar("Finding", CounterChange, TimeJudgement, Drift)

_LEAST_DIGITS = 7
_NOT_SLOWER, _MOST_GROWTH = 1.01, 0.02
_PASSING = (Verdict.PASS, Verdict.FASTER)


def judge_all(prepared: Prepared, benchmarks: Benchmarks, counters: Counters, times: Times) -> Judgement:
    """Raise GateError if tier 2 was asked for and there is no history of this machine."""
    settings, commits = prepared.settings, prepared.commits
    today = datetime.fromisoformat(prepared.started_at).date()
    lasting, of_history = find_drifts(prepared, benchmarks, times.environment)
    changes, of_counters = apply_accepted(counters.changes, settings.accepted, commits, today)
    judgements, of_times = apply_accepted(times.judgements, settings.accepted, commits, today)
    lasting, of_drifts = apply_accepted(lasting, settings.accepted, commits, today)
    changes = with_tolerances(changes, settings.counts)
    changes = with_trades(changes, judgements, timed_by(counters.by_name, benchmarks.both))
    gaps = (counters.gap, prepared.too_busy, words.named("skipped or gone on head", benchmarks.lost))
    verdict, why = overall_verdict(
        changes,
        judgements,
        lasting,
        blames=counters.blames,
        counted_cases=counters.cases,
        new=[*(benchmark.name for benchmark in benchmarks.new), *counters.new],
        gap="; ".join(filter(None, gaps)) or None,
        is_timed=1 in prepared.tiers,
        compared=bool(counters.cases or judgements or 2 in prepared.tiers),
    )
    needs = budget_that_decides(times, prepared.budget_s) if verdict is Verdict.UNDECIDED else None
    notes = (benchmarks.notes, counters.notes, times.notes, of_history, of_counters, of_times, of_drifts)
    return Judgement(
        verdict=verdict,
        why="; ".join(filter(None, [why, words.named("left out", benchmarks.left_out), needs])),
        base=prepared.base,
        head=prepared.head,
        tiers=prepared.tiers,
        started_at=prepared.started_at,
        duration_s=time.monotonic() - prepared.start_s,
        alarm_rate=settings.alarm_rate,
        counted_cases=counters.cases,
        uncounted_cases=counters.uncounted,
        counters=changes,
        blames=counters.blames,
        times=judgements,
        drifts=lasting,
        notes=tuple(dict.fromkeys([*prepared.notes, *(note for of_stage in notes for note in of_stage)])),
        false_alarms=measured_false_alarms(prepared.self_tests, prepared.history.lines, times.environment),
        environment=times.environment,
    )


def find_drifts(
    prepared: Prepared, benchmarks: Benchmarks, environment: Environment | None
) -> tuple[tuple[Drift, ...], tuple[str, ...]]:
    """The lasting steps up in this machine's history, and notes; none without tier 2.

    Raise GateError if there is no history of this machine.
    """
    if 2 not in prepared.tiers:
        return (), ()
    lines = prepared.history.lines
    here = environment or (lines[-1].environment if lines else None)
    if here is None:
        raise GateError("--tiers: 2 needs a history of this machine; allowed: 1,2, or 2 after gates that had 1")
    records, unread = read_records(prepared.results)
    series, left_out = series_of(lines, records, prepared.repository.dates(), here)
    thresholds = {benchmark.name: benchmark.threshold for benchmark in benchmarks.both}
    return drifts(series, thresholds), (*unread, *left_out)


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
    """The verdict and its reason in one line: what, by how much, and where.

    SLOWER if a regression is neither accepted, tolerated nor traded. Else UNDECIDED if a benchmark is, and is not
    accepted, if tier 0 has a `gap`, or if nothing is `compared` or `new`. Without times, or if these are undecided,
    counters that times could trade are UNDECIDED.
    """
    worse = [change for change in counters if change.state is State.WORSE]
    slower, undecided = _not_accepted(times, Verdict.SLOWER), _not_accepted(times, Verdict.UNDECIDED)
    drifted = [drift for drift in drifts if drift.accepted is None]
    question = None
    if (undecided or not is_timed) and _only_times_can_tell(worse, counters):
        better = sum(change.is_worse is False for change in counters)
        question = words.only_times_can_tell(worse, better, is_timed=is_timed)
    open_worse = [] if question else worse
    if reasons := list(words.regressions(open_worse, slower, drifted, blames, counted_cases)):
        return Verdict.SLOWER, "; ".join(reasons)
    nothing = None if compared or new else "nothing was compared"
    if gaps := list(filter(None, [words.between(undecided), question, gap, nothing])):
        return Verdict.UNDECIDED, "; ".join(gaps)
    findings: list[CounterChange | TimeJudgement | Drift] = [*counters, *times, *drifts]
    accepted = sum(finding.accepted is not None for finding in findings)
    faster = [time for time in times if time.verdict is Verdict.FASTER]
    what = words.NOT_WORSE if counted_cases and not is_timed else words.NOT_SLOWER
    return Verdict.PASS, "; ".join(words.passing(counters, faster, accepted, new, what if compared else ""))


def _not_accepted(times: Sequence[TimeJudgement], verdict: Verdict) -> list[TimeJudgement]:
    return [time for time in times if time.verdict is verdict and time.accepted is None]


def apply_accepted(
    findings: Sequence[Finding], accepted: Sequence[Accepted], commits_in_range: Set[str], today: date
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The same findings, with `accepted` set if an entry covers them, and notes.

    The `revision` of an entry must be a commit of base..head, or the one that began a drift. A note names an entry that
    would cover a finding if it had not expired, or if its hash were longer.
    """
    notes: dict[str, None] = {}
    marked = [_mark(finding, accepted, commits_in_range, today, notes) for finding in findings]
    return tuple(marked), tuple(notes)


def _mark(
    finding: Finding, accepted: Sequence[Accepted], commits_in_range: Set[str], today: date, notes: dict[str, None]
) -> Finding:
    if not _can_be_accepted(finding):
        return finding
    commits = {finding.since_commit} if isinstance(finding, Drift) else commits_in_range
    reasons = list[str]()
    for entry in accepted:
        if not fnmatchcase(finding.benchmark, entry.benchmark) or len(entry.revision) < _LEAST_DIGITS:
            continue
        meant = [commit for commit in commits if commit.startswith(entry.revision)]
        where = f"accepted: {entry.benchmark!r} at {entry.revision}"
        if len(meant) > 1:
            reasons.append(f"{where} is ambiguous: {len(meant)} commits of base..head begin so; allowed: more digits")
        elif meant and today > entry.expires:
            reasons.append(f"{where} expired on {entry.expires}")
        elif meant:
            return finding.model_copy(update={"accepted": entry})
    notes.update(dict.fromkeys(reasons))
    return finding


def _can_be_accepted(finding: CounterChange | TimeJudgement | Drift) -> bool:
    """UNDECIDED counts: the entry covers it if it is slower, and it needs no entry if it is not."""
    if isinstance(finding, TimeJudgement):
        return finding.verdict in (Verdict.SLOWER, Verdict.UNDECIDED)
    return not isinstance(finding, CounterChange) or finding.is_worse is not False


def with_tolerances(changes: Sequence[CounterChange], tolerances: Tolerances) -> tuple[CounterChange, ...]:
    return tuple(
        change.model_copy(update={"tolerated": True})
        if change.is_worse and is_tolerated(change.counter, change.base or 0, change.more, tolerances)
        else change
        for change in changes
    )


TimedBy = Mapping[str, tuple[str, ...]]
"""By the name of a counted case, the benchmarks of tier 1 that time the same workload in the same mode."""


def timed_by(cases: Mapping[str, Case], benchmarks: Sequence[Benchmark]) -> TimedBy:
    steps = [benchmark for benchmark in benchmarks if benchmark.timed is Timed.STEP]
    return {
        name: tuple(step.name for step in steps if (step.workload, step.mode) == (case.workload, case.mode))
        for name, case in cases.items()
    }


def with_trades(
    changes: Sequence[CounterChange], times: Sequence[TimeJudgement], timed: TimedBy
) -> tuple[CounterChange, ...]:
    """All timed benchmarks of a case must allow the trade.

    A case that no benchmark times is traded too if a traded case grew by as many calls in the same counter: then the
    times have seen these calls.
    """
    by_name = {time.benchmark: time for time in times}
    own = [
        _traded(change, [by_name[name] for name in timed.get(change.benchmark, ()) if name in by_name])
        for change in changes
    ]
    most: dict[str, CounterChange] = {}
    for change in own:
        if change.traded_for and (change.counter not in most or change.more > most[change.counter].more):
            most[change.counter] = change
    seen = [change if timed.get(change.benchmark) else _traded_with(change, most.get(change.counter)) for change in own]
    return tuple(_traded_for_faster(change, times, seen) for change in seen)


def _traded(change: CounterChange, times: Sequence[TimeJudgement]) -> CounterChange:
    if not _is_open(change, Trade.NOT_SLOWER) or not times or not all(_allows(time, change) for time in times):
        return change
    return _for(change, times)


def _traded_with(change: CounterChange, other: CounterChange | None) -> CounterChange:
    if other is None or not _is_open(change, Trade.NOT_SLOWER) or change.more > other.more:
        return change
    return change.model_copy(update={"traded_for": other.traded_for})


def _traded_for_faster(
    change: CounterChange, times: Sequence[TimeJudgement], changes: Sequence[CounterChange]
) -> CounterChange:
    faster = [time for time in times if time.verdict is Verdict.FASTER]
    all_pass = all(time.verdict in _PASSING for time in times)
    can = _is_open(change, Trade.NOT_SLOWER, Trade.FASTER) or _falls_elsewhere(change, changes)
    return _for(change, faster) if faster and all_pass and can and _growth(change) <= _MOST_GROWTH else change


def _falls_elsewhere(change: CounterChange, changes: Sequence[CounterChange]) -> bool:
    """Whether a worse counter falls in other cases by as much as it grows, and may be traded."""
    if change.state is not State.WORSE or kind_of(change.counter).trade is Trade.NEVER:
        return False
    return sum(other.more for other in changes if other.counter == change.counter) <= 0


def _only_times_can_tell(worse: Sequence[CounterChange], changes: Sequence[CounterChange]) -> bool:
    """Whether times can outvote all worse counters, and other counters are better."""
    is_any_better = any(change.is_worse is False for change in changes)
    can_be_traded = (_is_open(change, Trade.NOT_SLOWER) or _falls_elsewhere(change, changes) for change in worse)
    return bool(worse) and is_any_better and all(can_be_traded)


def _is_open(change: CounterChange, *trades: Trade) -> bool:
    return change.state is State.WORSE and kind_of(change.counter).trade in trades


def _for(change: CounterChange, times: Sequence[TimeJudgement]) -> CounterChange:
    return change.model_copy(update={"traded_for": ", ".join(time.benchmark for time in times)})


def _allows(time: TimeJudgement, change: CounterChange) -> bool:
    if time.verdict not in _PASSING or time.ratio is None:
        return False
    return time.ratio.high < 1 or (time.ratio.high < _NOT_SLOWER and _growth(change) <= _MOST_GROWTH)


def _growth(change: CounterChange) -> float:
    return change.more / change.base if change.base else inf
