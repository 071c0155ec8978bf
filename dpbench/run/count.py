"""The child that counts: a CountJob on stdin, a CountRecord on a pipe of its own.

    python -m dpbench.run.count --record-fd N --parent-pid P

One case in a process: the simulated devices are registered with torch for its life. For variants with one process per
device this process is rank 0 and starts the others.
"""

import argparse
import os
import sys
from pathlib import Path

from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.run.count_job import CountJob
from dpbench.run.lifeline import die_with_parent
from dpbench.run.ranks import Rendezvous, connector, start_ranks
from dpbench.sweep.names import VariantName

_MODULE = "dpbench.run.count"


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    job = CountJob.model_validate_json(sys.stdin.read())
    rendezvous = None
    if job.case.variant is VariantName.DDP:
        size = len(job.case.devices)
        rendezvous = Rendezvous(options.rank, size, options.port) if options.rank else start_ranks(job, size, _MODULE)
    record = _counted(job, rendezvous)
    if options.record_fd is not None:
        with os.fdopen(options.record_fd, "w") as pipe:
            pipe.write(record.model_dump_json())


def _counted(job: CountJob, rendezvous: Rendezvous | None) -> CountRecord:
    # The heavy imports come after the lifeline and after the other ranks were started.
    import torch

    from dpbench.measure.counts import count
    from dpbench.measure.environment import read_environment
    from dpbench.workloads.base import WorkloadError

    def refused(reason: str) -> CountRecord:
        return CountRecord(case=job.case, outcome=Outcome.SKIPPED, reason=reason)

    if fault := _start_simulator(job):
        return refused(f"devices: {fault}")
    try:
        counts, recording = count(job.case, connector(rendezvous))
    except WorkloadError as error:
        return refused(str(error))
    except NotImplementedError as error:
        # Where it comes out of a replica, torch puts the traceback first and the error's own words last.
        words = str(error).strip().splitlines()[-1].removeprefix("NotImplementedError: ")
        return refused(f"workloads: {job.case.workload!r}: {words}; allowed: see dpbench/simulator/README.md")
    if job.events is not None and recording is not None:
        recording.write(Path(job.events))
    environment = read_environment([torch.device("cpu")])
    return CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=environment)


def _start_simulator(job: CountJob) -> str | None:
    """Why it cannot be, where it cannot."""
    indices = [int(device.partition(":")[2]) for device in job.case.devices if device.startswith("sim:")]
    if not indices:
        return None
    from dpbench.simulator import simulate

    try:
        simulate(max(indices) + 1)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.count", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()
