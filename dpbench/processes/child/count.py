"""The child that counts cases: CountJobs on stdin, CountRecords on the record pipe.

    python -m dpbench.processes.child.count --record-fd N --parent-pid P

parent ──launches──> this process: imports torch once, and uses it for nothing else
                        ├──forks──> count_case    one fork for each case, as many at a time as there are cores
                        └──forks──> count_case

Importing torch takes longer than counting. A fork of a process with one thread is as good as a fresh process, and the
counts are equal each time. The parent sets the environment that keeps this process at one thread (`count_all.py`).
"""

import math
import os
import signal
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from pydantic import ValidationError

from dpbench.cases.host import usable_cores
from dpbench.cases.names import borrowed
from dpbench.cases.variants import VariantName
from dpbench.processes.child.borrowed import count_borrowed, preload
from dpbench.processes.child.process import answer, loading, run_and_exit
from dpbench.processes.child.ranks import Rendezvous, connector, fork_ranks
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Exit
from dpbench.processes.messages import CountJob, CountJobs, CountRecords
from dpbench.processes.process_tree import die_with_parent
from dpbench.processes.wrapper_of import use_folder
from dpbench.projection.collectives import bytes_by_link
from dpbench.projection.mid_case import projected_ns
from dpbench.records.counts import CountRecord
from dpbench.records.record import Outcome

# Without this, torch would import the last two in the first step.
_PRELOADED = ("dpbench.measure.count_step", "torch._dynamo", "torch.distributed.tensor")


def respond(text: str) -> CountRecords:
    request = CountJobs.model_validate_json(text)
    lent = [suite for job in request.jobs for suite, _ in [borrowed(job.case.workload) or ("", "")] if suite]
    preload(set(lent))
    with loading():
        for module in _PRELOADED if len(lent) < len(request.jobs) else ():
            import_module(module)
    records = _count_all(request)
    return CountRecords(records=records)


@dataclass(frozen=True)
class _Fork:
    """A process that counts `job`. It writes its record and its output to two files in memory."""

    job: CountJob
    record_fd: int
    output_fd: int


def _count_all(request: CountJobs) -> tuple[CountRecord, ...]:
    waiting, running = list(enumerate(request.jobs)), dict[int, tuple[int, _Fork]]()
    found: dict[int, CountRecord] = {}
    why_numbers: dict[int, str] = {}
    while waiting or running:
        while waiting and len(running) < usable_cores():
            index, job = waiting.pop(0)
            pid, fork = _start(job, request.timeout_s)
            running[pid] = index, fork
        pid, status = os.wait()
        index, fork = running.pop(pid)
        record = _record_of(fork, os.waitstatus_to_exitcode(status), request.timeout_s)
        if not fork.job.numbers and record.outcome in (Outcome.SKIPPED, Outcome.CRASHED):
            why_numbers[index] = record.why
            waiting.append((index, fork.job.model_copy(update={"numbers": True})))
            continue
        found[index] = record.model_copy(update={"why_numbers": why_numbers.get(index)})
    return tuple(found[index] for index in range(len(found)))


def _start(job: CountJob, timeout_s: float) -> tuple[int, _Fork]:
    fork = _Fork(job, os.memfd_create("record"), os.memfd_create("output"))
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        run_and_exit(lambda: _count(fork, parent, timeout_s))
    return pid, fork


def _count(fork: _Fork, parent: int, timeout_s: float) -> None:
    die_with_parent(parent)
    os.dup2(fork.output_fd, 1)
    os.dup2(fork.output_fd, 2)
    signal.alarm(math.ceil(timeout_s))  # SIGALRM ends the process even if it hangs in C code
    if fork.job.folder is not None and borrowed(fork.job.case.workload) is None:
        use_folder(Path(fork.job.folder))
    with os.fdopen(fork.record_fd, "w") as record:
        record.write(count_case(fork.job).model_dump_json())


def _record_of(fork: _Fork, returncode: int, timeout_s: float) -> CountRecord:
    record, output = _contents(fork.record_fd), _contents(fork.output_fd)
    try:
        return CountRecord.model_validate_json(record)
    except ValidationError:
        timed_out = returncode == -signal.SIGALRM
        limit_s = timeout_s if timed_out else None
        reason = ending(Exit(started_at="", duration_s=0.0, returncode=returncode, timed_out_after_s=limit_s))
        outcome = Outcome.TIME_OUT if timed_out else Outcome.CRASHED
        return CountRecord(case=fork.job.case, outcome=outcome, reason="\n".join([reason, *last_lines(output)]))


def _contents(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read()


def count_case(job: CountJob, rendezvous: Rendezvous | None = None) -> CountRecord:
    """Return the record of the case, counted by this process, or by a team of ranks.

    This process is used once, because torch keeps the simulated devices registered until it ends. `rendezvous` says
    which rank it is; None means rank 0. A case that cannot be counted gives a skipped
    record with the reason. Other failures raise.
    """
    if borrowed(job.case.workload) is not None:
        return count_borrowed(job)
    if rendezvous is None and job.case.variant.is_per_rank:
        rendezvous = fork_ranks(len(job.case.devices), partial(count_case, job))
    from dpbench.measure.count_step import Extras, count
    from dpbench.measure.environment import read_environment
    from dpbench.workloads.workload import WorkloadError

    def skipped(reason: str) -> CountRecord:
        return CountRecord(case=job.case, outcome=Outcome.SKIPPED, reason=reason)

    if fault := _start_simulator(job):
        return skipped(f"devices: {fault}")
    extras = Extras(
        gradients=job.gradients,
        thorough=job.thorough,
        more_steps=job.more_steps,
        uses=job.uses,
        details=job.details,
    )
    try:
        counts, recording, details = count(job.case, connector(rendezvous), extras)
    except WorkloadError as error:
        return skipped(str(error))
    except NotImplementedError as error:
        # If a replica raised the error, torch puts the replica's traceback first and the error's own text last.
        words = str(error).strip().splitlines()[-1].removeprefix("NotImplementedError: ")
        return skipped(f"workloads: {job.case.workload!r}: {words}; allowed: see dpbench/simulator/README.md")
    if job.events is not None and recording is not None:
        try:
            recording.write(Path(job.events))
        except OSError as error:
            return skipped(f"events: {job.events!r} cannot be written: {error.strerror}; allowed: a file")
    if recording is not None and job.case.variant.name is VariantName.TORCH_DP:
        counts = counts.model_copy(update={"nccl_links": bytes_by_link(recording)})
    if job.machines and recording is not None:
        counts = counts.model_copy(update={"projected": projected_ns(recording, job.case, job.machines)})
    environment = read_environment()
    return CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=environment, details=details)


def _start_simulator(job: CountJob) -> str | None:
    """Start the simulator if the case has simulated devices. Return the reason if it cannot start, else None."""
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
