"""The child that counts cases: CountJobs on stdin, CountRecords on the record pipe.

    python -m dpbench.jobs.count_child --record-fd N --parent-pid P

parent ──launches──> this process: imports torch once, and uses it for nothing else
                        ├──forks──> count_case    one fork for each case, as many at a time as there are cores
                        └──forks──> count_case

The parent sets the environment that keeps this process at one thread (`count.py`).
"""

import gc
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path

from dpbench.cases.host import usable_cores
from dpbench.cases.names import borrowed, uses_file
from dpbench.cases.variants import VariantName
from dpbench.engine.child import answer, loading, run_and_exit
from dpbench.engine.fence import enclose
from dpbench.engine.interpret import answer_in, ending, last_lines
from dpbench.engine.launch import RECORD_BYTES, TAIL_BYTES, Exit
from dpbench.engine.messages import CountJob, CountJobs, CountRecords
from dpbench.engine.process_tree import die_with_parent
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


def respond(text: str) -> CountRecords:
    request = CountJobs.model_validate_json(text)
    lent = [suite for job in request.jobs for suite, _ in [borrowed(job.case.workload) or ("", "")] if suite]
    preload(set(lent))
    with loading():
        for module in _PRELOADED if len(lent) < len(request.jobs) else ():
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


@dataclass(frozen=True)
class _Fork:
    index: int
    job: CountJob
    pid: int
    ended: int
    deadline_s: float
    record_fd: int
    output_fd: int


def _count_all(request: CountJobs) -> tuple[CountRecord, ...]:
    waiting, running = list(enumerate(request.jobs)), list[_Fork]()
    records: dict[int, CountRecord] = {}
    why_numbers: dict[int, str] = {}
    while waiting or running:
        while waiting and len(running) < usable_cores():
            running.append(_start(*waiting.pop(0), request.timeout_s))
        fork, timed_out_after_s = _next_to_end(running, request.timeout_s)
        index = fork.index
        record = _record_of(fork, timed_out_after_s)
        if not fork.job.numbers and record.outcome in (Outcome.SKIPPED, Outcome.CRASHED):
            why_numbers[index] = record.why
            waiting.append((index, fork.job.model_copy(update={"numbers": True})))
            continue
        records[index] = record.model_copy(update={"why_numbers": why_numbers.get(index)})
    return tuple(records[index] for index in range(len(records)))


def _start(index: int, job: CountJob, timeout_s: float) -> _Fork:
    record_fd, output_fd = os.memfd_create("record"), os.memfd_create("output")
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        run_and_exit(lambda: _count(job, parent, record_fd, output_fd))
    return _Fork(index, job, pid, os.pidfd_open(pid), time.monotonic() + timeout_s, record_fd, output_fd)


def _next_to_end(running: list[_Fork], timeout_s: float) -> tuple[_Fork, float | None]:
    """Remove a fork that ended, or kill the first if it is late: counted code can switch off a fork's own alarm."""
    ended = wait([fork.ended for fork in running], max(0.0, running[0].deadline_s - time.monotonic()))
    fork = next(fork for fork in running if not ended or fork.ended in ended)
    running.remove(fork)
    if not ended:
        signal.pidfd_send_signal(fork.ended, signal.SIGKILL)
    return fork, None if ended else timeout_s


def _count(job: CountJob, parent: int, record_fd: int, output_fd: int) -> None:
    die_with_parent(parent)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    is_borrowed = borrowed(job.case.workload) is not None
    enclose(record_fd, folders=[scratch_of(Path(job.folder or "."))] if is_borrowed else [])
    if job.folder is not None and not is_borrowed:
        use_folder(Path(job.folder))
    with os.fdopen(record_fd, "w") as record:
        record.write(count_case(job).model_copy(update={"imported": job.imported()}).model_dump_json())


def _record_of(fork: _Fork, timed_out_after_s: float | None) -> CountRecord:
    returncode = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
    os.close(fork.ended)
    record, output = _end_of(fork.record_fd, RECORD_BYTES), _end_of(fork.output_fd, TAIL_BYTES)
    if answer := answer_in(record, CountRecord):
        return answer
    end = Exit(started_at="", duration_s=0.0, returncode=returncode, timed_out_after_s=timed_out_after_s)
    outcome = Outcome.CRASHED if timed_out_after_s is None else Outcome.TIME_OUT
    reason = "\n".join([ending(end), *last_lines(output)])
    return CountRecord(case=fork.job.case, outcome=outcome, reason=reason)


def _end_of(fd: int, most_bytes: int) -> bytes:
    with os.fdopen(fd, "rb", 0) as file:
        return os.pread(fd, most_bytes, max(0, os.fstat(file.fileno()).st_size - most_bytes))


def count_case(job: CountJob, rendezvous: Rendezvous | None = None) -> CountRecord:
    """Use the process once: torch keeps the simulated devices registered until it ends.

    A case that cannot be counted gives a skipped record, or a crashed one if the variant is the user's.
    """
    if borrowed(job.case.workload) is not None:
        return count_borrowed(job)
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
