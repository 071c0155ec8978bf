"""The child that counts cases: CountJobs on stdin, CountRecords on the record pipe.

    python -m dpbench.jobs.count_child --record-fd N --parent-pid P

parent ──launches──> this process: imports torch once, and uses it for nothing else
                        ├──forks──> count_case    one fork for each case, as many at a time as there are cores
                        └──forks──> count_case

The parent sets the environment that keeps this process at one thread (`count.py`).
"""

import gc
import os
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from dpbench.cases.host import usable_cores
from dpbench.cases.names import borrowed, uses_file
from dpbench.cases.supports import why_not_compiled
from dpbench.cases.variants import VariantName
from dpbench.engine.child import answer, loading
from dpbench.engine.fence import enclose
from dpbench.engine.fork import run_in_forks
from dpbench.engine.interpret import answer_in, ending, last_lines
from dpbench.engine.launch import Exit
from dpbench.engine.messages import CountJob, CountJobs, CountRecords
from dpbench.engine.wrapper_of import compile_wrapper, scratch_of, use_folder
from dpbench.jobs.borrowed import count_borrowed, preload
from dpbench.jobs.ranks import Rendezvous, connector, fork_ranks
from dpbench.measure.counted.dependencies import route_counters
from dpbench.projection.step_counts import bytes_by_link, count_step
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome

# Without this, torch would import the last two in the first step.
_PRELOADED = (
    "dpbench.measure.counted.with_torch",
    "dpbench.measure.counted.uses",
    "dpbench.measure.count_step",
    "torch._dynamo",
    "torch.distributed.tensor",
)


def respond(request: CountJobs) -> CountRecords:
    borrowed_suites = [suite for job in request.jobs for suite, _ in [borrowed(job.case.workload) or ("", "")] if suite]
    preload(set(borrowed_suites))
    with loading():
        for module in _PRELOADED if len(borrowed_suites) < len(request.jobs) else ():
            import_module(module)
    for folder in {job.folder for job in request.jobs if job.folder and borrowed(job.case.workload) is None}:
        compile_wrapper(Path(folder))
    gc.freeze()  # else each collection in a fork walks all that torch's import made, which is a third of the time
    note = _note_on_torch() if any(job.case.devices[0].startswith("sim:") for job in request.jobs) else None
    return CountRecords(records=_count_all(request), note=note)


def _note_on_torch() -> str | None:
    """The forks find the answer of the self-check in this process."""
    import torch

    from dpbench.simulator.torch_versions import note_on

    return note_on(torch.__version__)


def _count_all(request: CountJobs) -> tuple[CountRecord, ...]:
    """Without numbers at first, where a job asks for that; what fails so is counted with them."""
    records = _counted_in_forks(request.jobs, request.timeout_s)
    failed = {
        index: record.why
        for index, (job, record) in enumerate(zip(request.jobs, records, strict=True))
        if not job.numbers and record.outcome in (Outcome.SKIPPED, Outcome.CRASHED)
    }
    again = [request.jobs[index].model_copy(update={"numbers": True}) for index in failed]
    for index, record in zip(failed, _counted_in_forks(again, request.timeout_s), strict=True):
        records[index] = record.model_copy(update={"why_numbers": failed[index]})
    return tuple(records)


def _counted_in_forks(jobs: Sequence[CountJob], timeout_s: float) -> list[CountRecord]:
    ends = run_in_forks([partial(_count, job) for job in jobs], timeout_s, usable_cores())
    return [_record_of(job, end) for job, end in zip(jobs, ends, strict=True)]


def _count(job: CountJob, record_fd: int) -> None:
    is_borrowed = borrowed(job.case.workload) is not None
    enclose(record_fd, folders=[scratch_of(Path(job.folder or "."))] if is_borrowed else [])
    if job.folder is not None and not is_borrowed:
        use_folder(Path(job.folder))
    with os.fdopen(record_fd, "w") as record:
        record.write(count_case(job).model_copy(update={"imported": job.imported()}).model_dump_json())


def _record_of(job: CountJob, end: Exit) -> CountRecord:
    if answer := answer_in(end.record, CountRecord):
        return answer
    outcome = Outcome.CRASHED if end.timed_out_after_s is None else Outcome.TIME_OUT
    return CountRecord(case=job.case, outcome=outcome, reason="\n".join([ending(end), *last_lines(end.tail)]))


def count_case(job: CountJob, rendezvous: Rendezvous | None = None) -> CountRecord:
    """Use the process once: torch keeps the simulated devices registered until it ends.

    A case that cannot be counted gives a skipped record, or a crashed one if the variant is the user's.
    """
    if borrowed(job.case.workload) is not None:
        return count_borrowed(job)
    if reason := why_not_compiled(job.case):
        return CountRecord(case=job.case, outcome=Outcome.SKIPPED, reason=reason)
    from dpbench.workloads.workload import WorkloadError

    try:
        return _count_uses(job) if uses_file(job.case.workload) else _counted(job, rendezvous)
    except WorkloadError as error:
        outcome = Outcome.CRASHED if job.case.variant.is_own else Outcome.SKIPPED
        return CountRecord(case=job.case, outcome=outcome, reason=str(error))


def _counted(job: CountJob, rendezvous: Rendezvous | None) -> CountRecord:
    from dpbench.measure.count_step import Extras, count
    from dpbench.measure.counted.details import Sites
    from dpbench.measure.environment import read_environment
    from dpbench.variants.registry import variant_of
    from dpbench.workloads.workload import WorkloadError

    case = job.case
    if variant_of(case.variant).per_rank:
        if case.devices[0] != "cpu":
            raise WorkloadError(f"variants: {str(case.variant)!r} has a process for each device; allowed: cpu*n")
        rendezvous = rendezvous or fork_ranks(len(case.devices), partial(count_case, job))
    if fault := _start_simulator(job):
        raise WorkloadError(f"devices: {fault}")
    extras = Extras(
        gradients=job.gradients,
        thorough=job.thorough,
        more_steps=job.more_steps,
        way=job.way,
        sites=Sites(job.changed_files()) if job.details else None,
    )
    try:
        counts, recording, details = count(case, connector(rendezvous), extras)
    except NotImplementedError as error:
        # If a replica raised the error, torch puts the replica's traceback first and the error's own text last.
        words = str(error).strip().splitlines()[-1].removeprefix("NotImplementedError: ")
        fault = f"workloads: {case.workload!r}: {words}; allowed: see dpbench/simulator/README.md"
        raise WorkloadError(fault) from error
    if job.events is not None and recording is not None:
        try:
            recording.write(Path(job.events))
        except OSError as error:
            fault = f"events: {job.events!r} cannot be written: {error.strerror}; allowed: a file"
            raise WorkloadError(fault) from error
    if recording is not None and case.variant.name is VariantName.TORCH_DP:
        counts = counts.model_copy(update={"nccl_links": bytes_by_link(count_step(recording, case.batch))})
    if job.routes and recording is not None and counts.dependencies is not None:
        home = int(case.devices[0].removeprefix("sim:"))
        depends = counts.dependencies.model_copy(update=route_counters(recording, home))
        counts = counts.model_copy(update={"dependencies": depends})
    environment = read_environment()
    return CountRecord(case=case, outcome=Outcome.OK, counts=counts, environment=environment, details=details)


def _count_uses(job: CountJob) -> CountRecord:
    from dpbench.measure.counted.details import Sites
    from dpbench.measure.counted.uses import count_uses
    from dpbench.measure.environment import read_environment
    from dpbench.workloads.workload import WorkloadError

    if fault := _start_simulator(job):
        raise WorkloadError(f"devices: {fault}")
    sites = Sites(job.changed_files()) if job.details else None
    try:
        counts = count_uses(Path(str(uses_file(job.case.workload))), job.case.devices, sites)
    except WorkloadError as error:
        return CountRecord(case=job.case, outcome=Outcome.CRASHED, reason=str(error))
    details, environment = sites.details() if sites else (), read_environment()
    return CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=environment, details=details)


def _start_simulator(job: CountJob) -> str | None:
    indices = [int(device.partition(":")[2]) for device in job.case.devices if device.startswith("sim:")]
    if not indices:
        return None
    from dpbench.simulator import simulate

    try:
        simulate(max(indices) + 1, numbers=job.numbers)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    answer(respond)
