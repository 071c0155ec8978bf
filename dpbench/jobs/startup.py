"""The start of a process with each side's wrapper: its import, its construction and its first forward.

coordinator (lockstep_child.py): has torch, but no wrapper and nothing of torch that a wrapper may import
    ├──forks──> base    import ─> model ─> construction ─> batch ─> first forward     the model and the batch are
    ├──forks──> head    ...                                                           not timed
    ├──forks──> twin    ...
    └──forks──> head    the next turn, in another random order

A fork right after the import of torch is as good as a new process, and takes milliseconds, not seconds.
"""

import gc
import os
import sys
import time
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from socket import socket
from typing import Any

import torch

from dpbench.cases.case import Case
from dpbench.cases.host import ranges
from dpbench.cases.names import Mode
from dpbench.engine.messages import LockstepRound, Side, SideName, StartUpJob, Timed
from dpbench.engine.wrapper_of import WRAPPER, use_folder
from dpbench.jobs.forks import Block, SideError, forked, sender
from dpbench.jobs.lockstep_side import failure
from dpbench.measure.clock import make_clock
from dpbench.measure.lane_threads import candidates
from dpbench.measure.session import build_model, draw_batch
from dpbench.measure.undisturbed import undisturbed
from dpbench.records.record import Outcome
from dpbench.variants.registry import variant_of
from dpbench.workloads.resolve import resolve

_ORDER = (Timed.IMPORT, Timed.CONSTRUCTION, Timed.FIRST_FORWARD)
_NOT_YET = (WRAPPER, "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "sympy")
"""Modules whose import this process must leave to its forks."""


def start_up_rounds(job: StartUpJob) -> tuple[LockstepRound, ...]:
    """Each block is the time of one fork."""
    assert not (imported := [module for module in _NOT_YET if module in sys.modules]), imported
    gc.freeze()  # a collection in a fork searches only the objects of the fork
    cores = ranges(sorted(job.cores))
    try:
        times_s = _alternate(job)
    except SideError as error:
        return tuple(
            LockstepRound(benchmark=name, outcome=error.outcome, reason=error.reason, side=error.side, cores=cores)
            for name in job.benchmarks
        )
    finally:
        gc.unfreeze()
    return tuple(
        LockstepRound(
            benchmark=name,
            outcome=Outcome.OK,
            times_s={side: tuple((run[_ORDER.index(timed)],) for run in runs) for side, runs in times_s.items()},
            cores=cores,
        )
        for name, timed in job.benchmarks.items()
    )


def _alternate(job: StartUpJob) -> dict[SideName, list[Block]]:
    """Raises SideError."""
    order, rng = list(job.sides), Random(job.seed)
    times_s: dict[SideName, list[Block]] = {name: [] for name in order}
    for name in order:
        _started(job, name)  # not counted: it reads the side's files from the disk
    for _ in range(job.forks):
        rng.shuffle(order)
        for name in order:
            times_s[name].append(_started(job, name))
    return times_s


def _started(job: StartUpJob, name: SideName) -> Block:
    with forked(name, partial(_serve, job, job.sides[name]), job.timeout_s) as fork:
        return fork.receive(len(_ORDER)).steps_s


def _serve(job: StartUpJob, side: Side, pipe: socket) -> None:
    os.sched_setaffinity(0, job.cores)
    os.environ.update(side.environment)
    send = sender(pipe)
    use_folder(Path(side.folder))
    try:
        send({"steps_s": _start_up_s(job.case)})
    except Exception as error:
        send(failure(error))


def _start_up_s(case: Case) -> Block:
    import_s = undisturbed(lambda: import_module(WRAPPER), time.perf_counter)()
    variant = variant_of(case.variant)
    torch.set_num_threads(candidates(case, variant)[0])
    workload, devices = resolve(case.workload, case.data), [torch.device(device) for device in case.devices]
    model, clock = build_model(case, workload, devices[0]), make_clock(tuple(devices))
    options = {"loss": workload.loss} if variant.has_loss else {}
    schemes: list[Any] = []
    construction_s = undisturbed(lambda: schemes.append(variant.wrap(model, devices, **options)), clock)()
    batch = draw_batch(case, workload, torch.Generator().manual_seed(case.seed))
    is_training = case.mode is Mode.TRAIN
    inputs = (*batch.inputs, batch.target) if variant.has_loss and is_training else batch.inputs
    with nullcontext() if is_training else torch.no_grad():
        forward_s = undisturbed(lambda: schemes[0](*inputs), clock)()
    return import_s, construction_s, forward_s
