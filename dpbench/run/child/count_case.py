"""Count one case, in a process that does nothing else.

The process is used once, because torch keeps the simulated devices registered until the process ends.
"""

from functools import partial
from pathlib import Path

from dpbench.projection.collectives import bytes_by_link
from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.run.child.ranks import Rendezvous, connector, fork_ranks
from dpbench.run.messages import CountJob
from dpbench.sweep.variants import VariantName


def count_case(job: CountJob, rendezvous: Rendezvous | None = None) -> CountRecord:
    """Return the record of the case, counted by this process, or by a team of ranks.

    `rendezvous` says which rank this process is; None means rank 0. A case that cannot be counted gives a skipped
    record with the reason. Other failures raise.
    """
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
        gradients=job.gradients, lines=job.lines, kept_steps=job.kept_steps, choices=job.choices, details=job.details
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
