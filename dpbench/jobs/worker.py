"""The record of one case in one round, measured in this process.

If a GPU has fallen off the bus or needs a reset, the outcome is ``lost_gpu``, and the case may be measured again.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import torch
from torch._dynamo.exc import TorchDynamoException

from dpbench.engine.messages import Job
from dpbench.jobs.probe_child import first_line
from dpbench.jobs.ranks import Rendezvous, connector, fork_ranks
from dpbench.measure.compilation import NotCompiledError, failure_line
from dpbench.measure.environment import read_environment
from dpbench.measure.fairness import WrongResultError
from dpbench.measure.gpu.bindings import pynvml
from dpbench.measure.gpu.facts import uuids_of
from dpbench.measure.gpu.nvml import LostGpuError, NotOfferedError, ask, find_gpu, start
from dpbench.measure.measurement import measure
from dpbench.measure.stopping import NotSettledError
from dpbench.records.record import Outcome, Record, line_on_lost_gpu
from dpbench.variants.registry import variant_of
from dpbench.workloads.workload import WorkloadError

_OUTCOMES = {
    WorkloadError: Outcome.CRASHED,
    NotSettledError: Outcome.NOT_SETTLED,
    WrongResultError: Outcome.WRONG_RESULT,
    NotCompiledError: Outcome.CRASHED,
}


def why_lost(error: BaseException, devices: Sequence[str]) -> str | None:
    """From the error's text or from NVML; None if no GPU of the case is lost."""
    if isinstance(error, LostGpuError):
        return str(error)
    if line := line_on_lost_gpu(str(error)):
        return line
    try:
        lost = lost_among(uuids_of([torch.device(device) for device in devices]))
    except (RuntimeError, NotOfferedError):  # neither CUDA nor NVML works any more, so the cause stays unknown
        return None
    return None if lost is None else f"{lost}; {first_line(error)}"


def lost_among(uuids: Mapping[str, str]) -> str | None:
    """`uuids` has bare UUIDs by torch's names. Raises NotOfferedError if NVML cannot be started."""
    if uuids:
        start()
    for device, uuid in uuids.items():
        try:
            # NVML does not cache the memory in use, so it has to read it from the GPU.
            ask(pynvml.nvmlDeviceGetMemoryInfo, find_gpu(device, uuid).handle)
        except LostGpuError as error:
            return f"{device}: {error}"
        except NotOfferedError:
            continue
    return None


def measured(job: Job, rendezvous: Rendezvous | None) -> Record:
    """A failure that is no outcome of the case raises."""
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")

    def failed(outcome: Outcome, reason: str) -> Record:
        return Record(
            run=job.run, case=job.case, round=job.round, started_at=started_at, outcome=outcome, reason=reason
        )

    try:
        if rendezvous is None and variant_of(job.case.variant).per_rank:  # a user's: the parent does not know
            rendezvous = fork_ranks(len(job.case.devices), lambda rank: measured(job, rank))
        measurement = measure(job.case, job.sampling_s, connector(rendezvous))
    except tuple(_OUTCOMES) as error:
        return failed(_OUTCOMES[type(error)], str(error))
    except TorchDynamoException as error:
        return failed(Outcome.CRASHED, failure_line(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return failed(Outcome.OUT_OF_MEMORY, first_line(error))
    except RuntimeError as error:
        if lost := why_lost(error, job.case.devices):
            return failed(Outcome.LOST_GPU, lost)
        # For memory of the CPU torch raises a plain RuntimeError (c10/core/impl/alloc_cpu.cpp).
        if "can't allocate memory" not in str(error):
            raise
        return failed(Outcome.OUT_OF_MEMORY, first_line(error))
    return Record(
        run=job.run,
        case=job.case,
        round=job.round,
        started_at=started_at,
        outcome=Outcome.OK,
        samples_s=measurement.samples_s,
        metrics=measurement.metrics,
        environment=read_environment(),
    )
