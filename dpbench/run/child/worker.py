"""The child that measures one case in one round.

A Job comes on stdin, and a Record goes to the record pipe.

    python -m dpbench.run.child.worker --record-fd N --parent-pid P

For a variant with one process per device, this process is rank 0 and starts the other ranks. With a ``--port`` it is
one of the ranks that the user's launcher has started.
"""

import argparse
import sys
from datetime import UTC, datetime

from dpbench.results.record import Outcome, Record
from dpbench.run.child.process import leave, loading, send
from dpbench.run.child.ranks import LOOPBACK, Rendezvous, connector, start_ranks
from dpbench.run.messages import Job
from dpbench.run.process_tree import die_with_parent

_MODULE = "dpbench.run.child.worker"


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    job = Job.model_validate_json(sys.stdin.read())
    rendezvous = None
    if job.case.variant.is_per_rank:
        # Start the ranks before torch is imported, so that all ranks import it at the same time.
        size = len(job.case.devices)
        rendezvous = start_ranks(job, size, _MODULE) if options.port is None else _rendezvous(options, size)
    record = _measured(job, rendezvous)
    if options.record_fd is None and record.outcome is not Outcome.OK:
        sys.exit(f"rank {options.rank}: {record.outcome}: {record.reason}")
    if options.record_fd is not None:
        send(options.record_fd, record.model_dump_json(by_alias=True))
    leave()


def _rendezvous(options: argparse.Namespace, size: int) -> Rendezvous:
    """Return that of a rank with a port. Only ranks of the user's launcher have a record pipe each."""
    is_launched = options.record_fd is not None
    return Rendezvous(options.rank, size, options.port, options.address, is_launched=is_launched)


def _measured(job: Job, rendezvous: Rendezvous | None) -> Record:
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    # The slow imports come after `die_with_parent` and after the start of the other ranks.
    with loading():
        import torch
        import torch._dynamo  # torch.optim imports it for the first optimizer

        from dpbench.measure.environment import read_environment
        from dpbench.measure.gpu.lost import why_lost
        from dpbench.measure.measurement import WrongResultError, measure

    def failed(outcome: Outcome, reason: str) -> Record:
        return Record(
            run=job.run, case=job.case, round=job.round, started_at=started_at, outcome=outcome, reason=reason
        )

    try:
        found = measure(job.case, job.budget_s, connector(rendezvous))
    except WrongResultError as error:
        return failed(Outcome.WRONG_RESULT, str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return failed(Outcome.OUT_OF_MEMORY, _first_line(error))
    except RuntimeError as error:
        if lost := why_lost(error, job.case.devices):
            return failed(Outcome.LOST_GPU, lost)
        # For memory of the CPU torch raises a plain RuntimeError (c10/core/impl/alloc_cpu.cpp).
        if "can't allocate memory" not in str(error):
            raise
        return failed(Outcome.OUT_OF_MEMORY, _first_line(error))
    return Record(
        run=job.run,
        case=job.case,
        round=job.round,
        started_at=started_at,
        outcome=Outcome.OK,
        samples_s=found.samples_s,
        metrics=found.metrics,
        environment=read_environment(),
    )


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.child.worker", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int)
    parser.add_argument("--address", default=LOOPBACK)
    return parser.parse_args()


if __name__ == "__main__":
    main()
