"""Count one case, in a process that does nothing else.

    python -m dpbench.run.child.count_case --parent-pid P --rank N --port P

The process is used once, because torch keeps the simulated devices registered until the process ends. The command above
is a further rank of a case with one process per device; rank 0 starts it.
"""

import argparse
import sys
from pathlib import Path

from dpbench.projection.collectives import bytes_by_link
from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.run.child.ranks import Rendezvous, connector, start_ranks
from dpbench.run.messages import CountJob
from dpbench.run.process_tree import die_with_parent
from dpbench.sweep.variants import VariantName


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    job = CountJob.model_validate_json(sys.stdin.read())
    count_case(job, Rendezvous(options.rank, len(job.case.devices), options.port))


def count_case(job: CountJob, rendezvous: Rendezvous | None = None) -> CountRecord:
    """Return the record of the case, counted by this process, or by a team of ranks.

    `rendezvous` says which rank this process is; None means rank 0. A case that cannot be counted gives a skipped
    record with the reason. Other failures raise.
    """
    if rendezvous is None and job.case.variant.is_per_rank:
        rendezvous = start_ranks(job, len(job.case.devices), "dpbench.run.child.count_case")
    from dpbench.measure.count_step import Extras, count
    from dpbench.measure.environment import read_environment
    from dpbench.workloads.workload import WorkloadError

    def skipped(reason: str) -> CountRecord:
        return CountRecord(case=job.case, outcome=Outcome.SKIPPED, reason=reason)

    if fault := _start_simulator(job):
        return skipped(f"devices: {fault}")
    extras = Extras(
        gradients=job.gradients,
        lines=job.lines,
        kept_steps=job.kept_steps,
        choices=job.choices,
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
    environment = read_environment()
    return CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=environment, details=details)


def _start_simulator(job: CountJob) -> str | None:
    """Start the simulator if the case has simulated devices.

    Return the reason if it cannot start, else None.
    """
    indices = [int(device.partition(":")[2]) for device in job.case.devices if device.startswith("sim:")]
    if not indices:
        return None
    from dpbench.simulator import simulate

    try:
        simulate(max(indices) + 1, numbers=job.numbers)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.child.count_case", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
