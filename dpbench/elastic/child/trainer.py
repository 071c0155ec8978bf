"""A worker, one for each rank: trains from the newest checkpoint to the last step, and fails where the plan says.

    imports, model ─> process group ─> READY ─> restore ─> step, step, checkpoint, step ... ─> DONE

A step's batch is a function of the seed and the step, divided over the present ranks, so a step done again has the same
samples.
"""

import hashlib
import os
from collections.abc import Callable
from datetime import timedelta

from dpbench.elastic.elastic_record import EventKind, RunScheme
from dpbench.elastic.run_files import AGENT_VARIABLE, ENVIRONMENT_FILE, ElasticJob, EventLog, read_job
from dpbench.engine.child import leave, loading
from dpbench.engine.process_tree import die_with_parent

with loading():
    import torch
    from torch import Tensor, nn
    from torch import distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from dpbench.cases.names import Data
    from dpbench.elastic.child.checkpoints import open_checkpoints
    from dpbench.elastic.child.inject import Injector
    from dpbench.measure.environment import read_environment
    from dpbench.workloads.resolve import resolve
    from dpbench.workloads.workload import Batch, Workload

_START_TIMEOUT = timedelta(minutes=10)


def main() -> None:
    agent, _, agent_pid = os.environ[AGENT_VARIABLE].partition(":")
    die_with_parent(int(agent_pid))
    job = read_job()
    rank, _ = _place()
    log = EventLog(job.events, agent=int(agent), rank=rank)
    torch.set_num_threads(1)
    workload = resolve(job.settings.workload, Data.RANDOM)
    torch.manual_seed(job.settings.seed)
    model = workload.model().to(getattr(torch, job.settings.dtype))
    scheme = _scheme(job, model)
    log.mark(EventKind.READY)
    loss = _train(job, workload, scheme, model, log)
    if rank == 0 and job.scheme is RunScheme.UNDISTURBED:
        (job.events / ENVIRONMENT_FILE).write_text(read_environment().model_dump_json())
    log.mark(EventKind.DONE, loss=loss, digest=_digest(model))
    dist.destroy_process_group()
    leave()


def _place() -> tuple[int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _scheme(job: ElasticJob, model: nn.Module) -> Callable[..., object]:
    # Ranks that start at different speeds do not hang. So only the group of the gradients has the short time-out.
    # A timer of torchelastic would kill the agent too (torch 2.13, file_based_local_timer.py).
    dist.init_process_group("gloo", timeout=_START_TIMEOUT)
    group = dist.new_group(timeout=timedelta(seconds=job.settings.hang_timeout_s))
    # Otherwise DDP arranges its buckets anew after a process's first step. gloo adds the ranks in an order that depends
    # on a gradient's place in its bucket. So with 3 ranks or more, a restart would change the last bits.
    return DistributedDataParallel(model, process_group=group, find_unused_parameters=True)


def _train(
    job: ElasticJob, workload: Workload, scheme: Callable[..., object], model: nn.Module, log: EventLog
) -> float:
    rank, world = _place()
    optimizer = workload.optimizer(model.parameters())
    settings = job.settings
    checkpoints = open_checkpoints(settings.backend, job.checkpoints, rank)
    first = checkpoints.restore(model, optimizer)
    log.mark(EventKind.RESTORE_END, step=first)
    injector = Injector(job.faults, rank, job.events, log)
    for step in range(first, settings.steps):
        injector.before(step)
        batch = _share(_batch(job, workload, step), rank, world)
        optimizer.zero_grad()
        loss = workload.loss(scheme(*batch.inputs), batch.target)
        (loss * _weight(batch, settings.batch, world)).backward()
        optimizer.step()
        log.mark(EventKind.STEP, step=step)
        if (step + 1) % settings.checkpoint_every == 0:
            checkpoints.save(model, optimizer, step + 1)
            log.mark(EventKind.CHECKPOINT_END, step=step + 1)
    return _loss(workload, model, _batch(job, workload, settings.steps - 1))


def _batch(job: ElasticJob, workload: Workload, step: int) -> Batch:
    generator = torch.Generator().manual_seed(job.settings.seed * 1_000_003 + step)
    batch = workload.batch(job.settings.batch, generator)
    dtype = getattr(torch, job.settings.dtype)
    return Batch(tuple(t.to(dtype) if t.is_floating_point() else t for t in batch.inputs), batch.target)


def _share(batch: Batch, rank: int, world: int) -> Batch:
    def share(t: Tensor) -> Tensor:
        return t.tensor_split(world)[rank]

    return Batch(tuple(share(t) for t in batch.inputs), share(batch.target))


def _weight(own_batch: Batch, items: int, world: int) -> float:
    """The factor on a rank's mean loss so that DDP's mean over ranks is that over items."""
    return len(own_batch.target) * world / items


def _loss(workload: Workload, model: nn.Module, batch: Batch) -> float:
    with torch.no_grad():
        return float(workload.loss(model(*batch.inputs), batch.target))


def _digest(model: nn.Module) -> str:
    """SHA-256, which differs if any bit of a parameter or buffer does."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
