"""One verdict from the findings of all tiers, but those that are accepted, tolerated or noted. Pure but for tier 2.

The settings file accepts a regression, and tolerates a little work of the host and a little memory. Of the other worse
counters these are noted, and pass:

    work of the host                            no benchmark that sees it is slower
    the same where no benchmark sees it         no step is slower, and it grew by at most a half
    peak memory, up to five times `memory`      a benchmark is faster, and all pass

What a device or a link does is worse whatever the times say, and so is memory that steps keep.
"""

import time
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from dpbench.cases.case import Case
from dpbench.engine.messages import Timed
from dpbench.errors import GateInputError
from dpbench.gate import words
from dpbench.gate.benchmarks import Benchmarks
from dpbench.gate.count_sides import Counters
from dpbench.gate.counters import GROWTH, is_tolerated, kind_of
from dpbench.gate.history import drifts, measured_false_alarms, read_records, series_of
from dpbench.gate.judgement import (
    Accepted,
    Blame,
    CounterChange,
    Drift,
    Judgement,
    State,
    TimeJudgement,
)
from dpbench.gate.prepare import Prepared
from dpbench.gate.settings import Benchmark, Tolerances
from dpbench.gate.time_sides import Times, budget_that_decides
from dpbench.judge.decision import Verdict
from dpbench.records.record import Environment

Finding = TypeVar("Finding", CounterChange, TimeJudgement, Drift)

_LEAST_DIGITS = 7
_BESIDE_A_GAIN = 5
_MOST_UNSEEN = 0.5


def judge_all(prepared: Prepared, benchmarks: Benchmarks, counters: Counters, times: Times) -> Judgement:
    """Raise GateError if tier 2 was asked for and there is no history of this machine."""
    settings, commits = prepared.settings, prepared.commits
    today = datetime.fromisoformat(prepared.started_at).date()
    lasting, of_history = find_drifts(prepared, benchmarks, times.environment)
    changes, of_counters = apply_accepted(counters.changes, settings.accepted, commits, today)
    judgements, of_times = apply_accepted(times.judgements, settings.accepted, commits, today)
    lasting, of_drifts = apply_accepted(lasting, settings.accepted, commits, today)
    timed = timed_by(counters.by_name, benchmarks.both)
    judgements = with_set_ups(judgements, changes, timed)
    changes = judged_counters(changes, judgements, timed, settings.counts)
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
        too_busy=prepared.too_busy is not None,
        compared=bool(counters.cases or judgements or 2 in prepared.tiers),
    )
    needs = budget_that_decides(times, prepared.budget_s) if verdict is Verdict.UNDECIDED else None
    of_set_ups = words.set_ups(judgements)
    notes = (benchmarks.notes, counters.notes, times.notes, of_set_ups, of_history, of_counters, of_times, of_drifts)
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
        false_alarms=measured_false_alarms(prepared.self_tests, prepared.history.rows, times.environment),
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
    lines = prepared.history.rows
    here = environment or (lines[-1].environment if lines else None)
    if here is None:
        raise GateInputError("--tiers: 2 needs a history of this machine; allowed: 1,2, or 2 after gates that had 1")
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
    too_busy: bool = False,
    compared: bool = True,
) -> tuple[Verdict, str]:
    """The verdict and its reason in one line: what, by how much, and where.

    SLOWER if a regression is neither accepted, tolerated nor noted. Else UNDECIDED if a benchmark is, and is not
    accepted, if tier 0 has a `gap`, or if nothing is `compared` or `new`. Without times, UNDECIDED if times can outvote
    all worse counters, and others are better or the machine is `too_busy` for the times that were asked for.
    """
    worse = [change for change in counters if change.state is State.WORSE]
    slower, undecided = _not_accepted(times, Verdict.SLOWER), _not_accepted(times, Verdict.UNDECIDED)
    drifted = [drift for drift in drifts if drift.accepted is None]
    faster = [time for time in times if time.verdict is Verdict.FASTER]
    better, question = sum(change.is_worse is False for change in counters), None
    if not is_timed and (better or too_busy) and _only_times_can_tell(worse):
        worse, question = [], words.only_times_can_tell(worse, better)
    if reasons := list(words.regressions(worse, slower, drifted, blames, counted_cases)):
        return Verdict.SLOWER, "; ".join([*reasons, *words.gain(faster)])
    nothing = None if compared or new else "nothing was compared"
    if gaps := list(filter(None, [words.between(undecided), question, gap, nothing])):
        return Verdict.UNDECIDED, "; ".join(gaps)
    findings: list[CounterChange | TimeJudgement | Drift] = [*counters, *times, *drifts]
    accepted = sum(finding.accepted is not None for finding in findings)
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


TimedBy = Mapping[str, tuple[str, ...]]
"""By the name of a counted case, the benchmarks of tier 1 that time the same workload in the same mode."""


def timed_by(cases: Mapping[str, Case], benchmarks: Sequence[Benchmark]) -> TimedBy:
    steps = [benchmark for benchmark in benchmarks if benchmark.timed is Timed.STEP]
    return {
        name: tuple(step.name for step in steps if (step.workload, step.mode) == (case.workload, case.mode))
        for name, case in cases.items()
    }


def with_set_ups(
    times: Sequence[TimeJudgement], changes: Sequence[CounterChange], timed: TimedBy
) -> tuple[TimeJudgement, ...]:
    """The cold caches that a longer set-up leaves make no benchmark slower: asv times one call after each set-up."""
    with_worse_calls = {name for change in changes if change.is_worse for name in timed.get(change.benchmark, ())}

    def judged(time: TimeJudgement) -> TimeJudgement:
        longer = (time.set_up or 1.0) - 1
        if time.verdict is not Verdict.SLOWER or longer <= 0 or time.benchmark in with_worse_calls:
            return time
        return time.model_copy(update={"verdict": Verdict.UNDECIDED, "why": words.SET_UP.format(100 * longer)})

    return tuple(map(judged, times))


def judged_counters(
    changes: Sequence[CounterChange], times: Sequence[TimeJudgement], timed: TimedBy, tolerances: Tolerances
) -> tuple[CounterChange, ...]:
    """The same changes, with `tolerated` or `traded_for` set where that holds.

    Where no benchmark times a case, all benchmarks must not be slower.
    """
    measured = {time.benchmark: time for time in times if time.ratio}
    faster = [time for time in times if time.verdict is Verdict.FASTER]
    all_pass = all(time.verdict in (Verdict.PASS, Verdict.FASTER) for time in times)

    def judged(change: CounterChange) -> CounterChange:
        if change.state is not State.WORSE:
            return change
        base, kind = change.base or 0, kind_of(change.counter)
        if is_tolerated(change.counter, base, change.more, tolerances):
            return change.model_copy(update={"tolerated": True})
        outvoting = list[TimeJudgement]()
        if kind.tolerance == "memory" and all_pass and change.more <= _BESIDE_A_GAIN * tolerances.memory * base:
            outvoting = faster
        elif kind.tolerance == "host":
            seeing = [measured[name] for name in timed.get(change.benchmark, ()) if name in measured]
            is_unseen = not seeing or change.counter.startswith("uses.") or change.counter.endswith(GROWTH)
            if not is_unseen or change.more <= _MOST_UNSEEN * base:
                outvoting = seeing or list(measured.values())
        if not outvoting or _not_accepted(outvoting, Verdict.SLOWER):
            return change
        return change.model_copy(update={"traded_for": words.first([time.benchmark for time in outvoting])})

    return tuple(map(judged, changes))


def _only_times_can_tell(worse: Sequence[CounterChange]) -> bool:
    return bool(worse) and all(kind_of(change.counter).tolerance == "host" for change in worse)
