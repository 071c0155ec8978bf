"""Trace one step of each variant, simulated or profiled."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench.cases.case import Case
from dpbench.cases.names import short_devices
from dpbench.cases.plan import Skip
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import CountJob, TraceJob, TraceRecord
from dpbench.engine.task import Task
from dpbench.jobs.count import run_jobs
from dpbench.records.record import Outcome
from dpbench.records.recording import Recording
from dpbench.trace.simulated import simulated_timeline
from dpbench.trace.timeline import Source, Trace, VariantTrace

TRACER = Task("dpbench.jobs.trace_child", TraceRecord)
_TIMEOUT_S = 300.0


def trace_simulated(
    cases: Sequence[Case], skipped: Sequence[Skip] = (), *, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S
) -> Trace:
    """Cases of one setting; raise ChildError."""
    traces: list[VariantTrace] = []
    with TemporaryDirectory(prefix="dpbench-trace-") as name:
        files = [Path(name, f"{number}.jsonl") for number in range(len(cases))]
        jobs = [CountJob(case=case, events=str(file), numbers=False) for case, file in zip(cases, files, strict=True)]
        records = run_jobs(jobs, launch=launch, timeout_s=timeout_s) if jobs else ()
        for record, file in zip(records, files, strict=True):
            variant = str(record.case.variant)
            if record.outcome is Outcome.OK:
                traces.append(VariantTrace(variant, simulated_timeline(Recording.read(file))))
            else:
                traces.append(VariantTrace(variant, None, reason=record.why))
    return Trace(Source.SIMULATED, _title(cases, skipped), [*traces, *_reasons(skipped)])


def trace_recorded(
    cases: Sequence[Case], skipped: Sequence[Skip] = (), *, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S
) -> Trace:
    traces = [_profiled(case, launch, timeout_s) for case in cases]
    return Trace(Source.RECORDED, _title(cases, skipped), [*traces, *_reasons(skipped)])


def _profiled(case: Case, launch: Launcher, timeout_s: float) -> VariantTrace:
    variant = str(case.variant)
    if case.variant.is_per_rank:
        reason = "has one process for each device; allowed: variants with one process"
        return VariantTrace(variant, None, reason=reason)
    ended = TRACER.run(TraceJob(case=case), timeout_s, launch)
    return VariantTrace(variant, None, reason=ended.why) if ended.answer is None else ended.answer.trace


def _title(cases: Sequence[Case], skipped: Sequence[Skip]) -> str:
    first = max((*cases, *(skip.case for skip in skipped)), key=lambda case: len(case.devices))
    return f"{first.workload} on {short_devices(first.devices)}, batch {first.batch}"


def _reasons(skipped: Sequence[Skip]) -> list[VariantTrace]:
    return [VariantTrace(str(skip.case.variant), None, reason=skip.reason) for skip in skipped]
