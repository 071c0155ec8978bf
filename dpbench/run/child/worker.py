"""A job measured in this process: the record of one case in one round."""

from datetime import UTC, datetime

import torch

from dpbench.measure.environment import read_environment
from dpbench.measure.gpu.lost import why_lost
from dpbench.measure.measurement import WrongResultError, measure
from dpbench.measure.stopping import NotSettledError
from dpbench.results.record import Outcome, Record
from dpbench.run.child.ranks import Rendezvous, connector
from dpbench.run.messages import Job


def measured(job: Job, rendezvous: Rendezvous | None) -> Record:
    """Measure the job and return its record. A failure that is no outcome of the case raises."""
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")

    def failed(outcome: Outcome, reason: str) -> Record:
        return Record(
            run=job.run, case=job.case, round=job.round, started_at=started_at, outcome=outcome, reason=reason
        )

    try:
        found = measure(job.case, job.sampling_s, connector(rendezvous))
    except NotSettledError as error:
        return failed(Outcome.NOT_SETTLED, str(error))
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
