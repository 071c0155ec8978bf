"""Run a gate: from a request to a judgement and a line in the history."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from dpbench.errors import GateError, ReportedError
from dpbench.gate.borrowed import Chosen, look_up
from dpbench.gate.build import build
from dpbench.gate.contents import compile_sides, guarded
from dpbench.gate.drift import drifts
from dpbench.gate.false_alarms import measured_false_alarms
from dpbench.gate.history import append_history, history_line, history_path, read_records, series_of
from dpbench.gate.judgement import Drift, Judgement, Revision, Verdict
from dpbench.gate.new_benchmarks import check_new, comparable
from dpbench.gate.overall_verdict import apply_accepted, named, overall_verdict, timed_by, with_trades
from dpbench.gate.prepare import WORKTREE, GateRequest, Prepared, prepare, write_sides
from dpbench.gate.revisions import gate_folder
from dpbench.gate.scripts import compare_scripts
from dpbench.gate.settings import LIMIT_S, BorrowedBenchmark, Settings
from dpbench.gate.take_round import Sides
from dpbench.gate.tier0 import Counters, compare_counters, counted_cases
from dpbench.gate.tier1 import TakeRound, Times, measure_times, round_taker, verdict_of
from dpbench.gate.tolerated import with_tolerances
from dpbench.processes.launch import Launcher, launch
from dpbench.processes.other_load import TOO_BUSY, wait_for_quiet
from dpbench.processes.wrapper_of import built_of, has_wrapper
from dpbench.records.record import Environment

Progress = Callable[..., object]
"""Takes a stage, and the seconds that are left if they are known."""


def run_gate(request: GateRequest, *, launch: Launcher = launch, progress: Progress = lambda *_: None) -> Judgement:
    """Judge head against base, and append a line to the history if times were measured.

    Raises GateError if the gate cannot judge; then no temporary file and no line of history is left.
    """
    started_at, start_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    try:
        request, too_busy = _without_times_if_busy(request, launch, progress)
        prepared = prepare(request, launch)
        budget_s = request.budget_s or prepared.settings.budget_s
        with gate_folder() as folder:
            sides = Sides(*write_sides(prepared, folder))
            build_s = _build(prepared.settings, sides, launch, progress)
            compile_sides(launch, (sides.base, sides.head), (each.workload for each in prepared.settings.benchmarks))
            launch = guarded(launch, folder, _guarded_folders(sides))
            prepared = prepared.without_new(comparable(prepared.settings.benchmarks, sides.base, sides.head))
            _check_new(prepared, sides, launch, progress)
            prepared = prepared.with_borrowed(_look_up(request, prepared.settings, sides, launch, progress))
            counters = _counters(request, prepared, sides, launch, progress) if 0 in request.tiers else Counters()
            left_s = budget_s - (time.monotonic() - start_s - build_s)
            take = round_taker(sides, prepared.lanes, launch)
            times = _times(request, prepared, take, left_s, progress)
        counters = replace(counters, gap="; ".join(filter(None, [counters.gap, too_busy])) or None)
        judgement = _judgement(request, prepared, counters, times, started_at)
        if judgement.verdict is Verdict.UNDECIDED and (needs := _budget_that_decides(times, budget_s)):
            judgement = judgement.model_copy(update={"why": f"{judgement.why}; {needs}"})
        judgement = judgement.model_copy(update={"duration_s": time.monotonic() - start_s})
        _append_to_history(request, prepared, judgement, times)
    except ReportedError as error:
        raise GateError(" ".join(str(error).split())) from error
    return judgement


def broken_judgement(request: GateRequest, why: str) -> Judgement:
    """Return the judgement that stands for a gate that raised GateError."""
    return Judgement(
        verdict=Verdict.BROKEN,
        why=why,
        base=Revision(asked=request.base, commit=None),
        head=Revision(asked=request.head or WORKTREE, commit=None),
        tiers=request.tiers,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=0.0,
        alarm_rate=Settings().alarm_rate,
    )


def _guarded_folders(sides: Sides) -> dict[str, Path]:
    """Return the commits' folders and those of their builds, which measured code must leave as they are."""
    commits = {"base": sides.base, "head": sides.head}
    return {**commits, **{f"{side}, as built": built_of(folder) for side, folder in commits.items()}}


def _build(settings: Settings, sides: Sides, launch: Launcher, progress: Progress) -> float:
    """Build both commits if benchmarks are borrowed. Return the seconds, which the budget does not count."""
    start_s = time.monotonic()
    for side, folder in (("base", sides.base), ("head", sides.head)) if settings.borrowed else ():
        progress(f"building {side}")
        build(side, folder, settings.build, launch)
    return time.monotonic() - start_s


def _look_up(request: GateRequest, settings: Settings, sides: Sides, launch: Launcher, progress: Progress) -> Chosen:
    if not settings.borrowed:
        return Chosen()
    progress("looking for the benchmarks of base and of head")
    chosen = look_up(settings.borrowed, sides.base, sides.head, launch)
    valued = [name for name, benchmark in chosen.both.items() if benchmark.is_value and 0 not in request.tiers]
    chosen.left_out += valued
    chosen.notes += [f"{name}: not compared: values are of tier 0" for name in valued]
    return chosen


def _counters(request: GateRequest, prepared: Prepared, sides: Sides, launch: Launcher, progress: Progress) -> Counters:
    progress("counting one step of base and of head")
    benchmarks = prepared.settings.benchmarks
    scripts = prepared.settings.scripts
    all_lent = (benchmarks or scripts or prepared.lost) and all(
        isinstance(benchmark, BorrowedBenchmark) for benchmark in benchmarks
    )
    cases = counted_cases(benchmarks, of_the_wrapper=has_wrapper(sides.base) and not all_lent)
    thresholds = {f"counts {benchmark.name}": benchmark.threshold for benchmark in benchmarks}
    limit_s = max([each.limit_s for each in benchmarks if isinstance(each, BorrowedBenchmark)], default=LIMIT_S)
    found = compare_counters(cases, sides.base, sides.head, launch, thresholds, limit_s=limit_s)
    if cases and not found.cases and found.gap is None and 1 not in request.tiers:
        raise GateError(f"--tiers: 0 counted nothing: {found.notes[0]}; allowed: a benchmark that can be counted, or 1")
    if scripts:
        progress("counting what the ranks of scripts send")
    return found.beside(compare_scripts(scripts, sides.base, sides.head, launch))


def _check_new(prepared: Prepared, sides: Sides, launch: Launcher, progress: Progress) -> None:
    if prepared.new:
        progress("counting one step of head's new benchmarks")
        of_the_wrapper = has_wrapper(sides.head) and not has_wrapper(sides.base)
        cases = counted_cases(prepared.new, of_the_wrapper=of_the_wrapper)
        check_new(tuple(cases.values()), sides.head, launch)


def _times(request: GateRequest, prepared: Prepared, take: TakeRound, budget_s: float, progress: Progress) -> Times:
    timed = [
        each for each in prepared.settings.benchmarks if not (isinstance(each, BorrowedBenchmark) and each.is_value)
    ]
    times = Times((), {}, None)
    if 1 not in request.tiers:
        return times
    end_s = time.monotonic() + budget_s
    # The project's own steps come first. Micro-benchmarks of its suites have the other half, and what steps leave.
    lent = [each for each in timed if isinstance(each, BorrowedBenchmark)]
    own = [each for each in timed if each not in lent]
    for group, share in ((own, 0.5 if lent else 1.0), (lent, 1.0)):
        if not group:
            continue
        is_open = verdict_of(times.judgements) is not Verdict.SLOWER
        times = times.beside(
            measure_times(
                group,
                take,
                alarm_rate=prepared.settings.alarm_rate,
                budget_s=share * (end_s - time.monotonic()) * is_open,
                of=len(timed),
                progress=progress,
            )
        )
    return times


def _without_times_if_busy(
    request: GateRequest, launch: Launcher, progress: Progress
) -> tuple[GateRequest, str | None]:
    """Return the request without tier 1 if the machine is too busy for times, and why; else as it is, and None.

    Wait for as long as the request allows. Times that were asked for by name are taken on any machine.
    """
    if request.takes_times_anyway or 1 not in request.tiers:
        return request, None
    prepare(replace(request, tiers=(0,)), launch)  # refuses wrong input at once; a busy machine takes long for torch
    wanting = wait_for_quiet(request.wait_s, progress)
    if wanting <= TOO_BUSY:
        if wanting > 1:
            progress(f"{wanting:.1f} processes for each core want to run: this takes longer, and decides less")
        return request, None
    busy = (
        f"the machine is too busy for times: {wanting:.1f} processes for each core want to run, at most {TOO_BUSY} may"
    )
    progress(f"{busy}; only counts are compared")
    tiers = tuple(tier for tier in request.tiers if tier != 1)
    return replace(request, tiers=tiers), f"{busy}; run with --wait-for-quiet 10m, or with --tiers 0,1 in spite of it"


def _budget_that_decides(times: Times, budget_s: float) -> str | None:
    """Return what an undecided verdict on times needs; None if it is decided."""
    if verdict_of(times.judgements) is not Verdict.UNDECIDED:
        return None
    if times.more_s is None:
        return "more time is not likely to decide it"
    return f"--budget {ceil((budget_s + times.more_s) * 1.2 / 60)}m would decide it, if the machine stays as it is"


def _judgement(
    request: GateRequest, prepared: Prepared, counters: Counters, times: Times, started_at: str
) -> Judgement:
    drifted, of_history = _drifts(request, prepared, times.environment)
    accepted, today = prepared.settings.accepted, datetime.now(UTC).date()
    changes, of_counters = apply_accepted(counters.changes, accepted, prepared.commits, today)
    judgements, of_times = apply_accepted(times.judgements, accepted, prepared.commits, today)
    drifted, of_drifts = apply_accepted(drifted, accepted, prepared.commits, today)
    notes = (*prepared.notes, *counters.notes, *times.notes)
    changes = with_tolerances(changes, prepared.settings.counts)
    changes = with_trades(changes, judgements, timed_by(counters.by_name, prepared.settings.benchmarks))
    verdict, why = overall_verdict(
        changes,
        judgements,
        drifted,
        blames=counters.blames,
        counted_cases=counters.cases,
        new=[*(benchmark.name for benchmark in prepared.new), *counters.new],
        gap="; ".join(filter(None, [counters.gap, named("skipped or gone on head", prepared.lost)])) or None,
        is_timed=1 in request.tiers,
        compared=bool(counters.cases or judgements or 2 in request.tiers),
    )
    return Judgement(
        verdict=verdict,
        why="; ".join(filter(None, [why, named("left out", prepared.left_out)])),
        base=prepared.base,
        head=prepared.head,
        tiers=request.tiers,
        started_at=started_at,
        duration_s=0.0,
        alarm_rate=prepared.settings.alarm_rate,
        counted_cases=counters.cases,
        uncounted_cases=counters.uncounted,
        counters=changes,
        blames=counters.blames,
        times=judgements,
        drifts=drifted,
        notes=tuple(dict.fromkeys([*notes, *of_history, *of_counters, *of_times, *of_drifts])),
        false_alarms=measured_false_alarms(request.results, prepared.history.lines, times.environment),
        environment=times.environment,
    )


def _drifts(
    request: GateRequest, prepared: Prepared, environment: Environment | None
) -> tuple[tuple[Drift, ...], tuple[str, ...]]:
    if 2 not in request.tiers:
        return (), ()
    lines = prepared.history.lines
    here = environment or (lines[-1].environment if lines else None)
    if here is None:
        raise GateError("--tiers: 2 needs a history of this machine; allowed: 1,2, or 2 after gates that had 1")
    records, unread = read_records(request.results)
    series, left_out = series_of(lines, records, prepared.repository.dates(), here)
    thresholds = {benchmark.name: benchmark.threshold for benchmark in prepared.settings.benchmarks}
    return drifts(series, thresholds), (*unread, *left_out)


def _append_to_history(request: GateRequest, prepared: Prepared, judgement: Judgement, times: Times) -> None:
    if times.environment is None:
        return
    cores, lanes = times.environment.cores, prepared.lanes
    ids = {benchmark.name: benchmark.series(cores, lanes) for benchmark in prepared.settings.benchmarks}
    line = history_line(judgement, ids, times.twin_alarmed, times.environment)
    append_history(history_path(request.results), line)
