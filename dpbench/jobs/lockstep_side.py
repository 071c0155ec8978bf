"""One side of a gate's round, with one commit's step: a fork, see forks.py."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from socket import socket
from typing import NamedTuple

import torch

from dpbench.cases.case import Case
from dpbench.engine.child import shifted_heap
from dpbench.engine.messages import LockstepJob, Side
from dpbench.engine.wrapper_of import use_folder
from dpbench.jobs.forks import WARMUP_S, Send, failed, pin, sender, take_blocks
from dpbench.measure.clock import make_clock
from dpbench.measure.fairness import WrongResultError, error_against_oracle, error_of_trained
from dpbench.measure.lane_threads import candidates
from dpbench.measure.measurement import refuse_wrong_result
from dpbench.measure.pinned import pinned
from dpbench.measure.sample import settle
from dpbench.measure.session import open_session
from dpbench.measure.undisturbed import undisturbed
from dpbench.records.record import Outcome
from dpbench.variants.registry import variant_of
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import WorkloadError


class TimedStep(NamedTuple):
    """`take` returns a step's seconds. `check` raises WrongResultError if what was timed computes something else."""

    take: Callable[[], float]
    trials_left: Callable[[], int | None]
    check: Callable[[], object]


def serve(job: LockstepJob, side: Side, pipe: socket) -> None:
    os.environ.update(side.environment)
    send = sender(pipe)
    ballast = shifted_heap()  # noqa: F841  # held until the end
    prepared = _prepared(job, side, send)
    if prepared is None:
        return
    step = prepared

    def settled(way: str) -> str:
        with pinned(way) as chosen:
            settle(step.take, step.trials_left)
        return chosen[-1] if chosen else ""

    take_blocks(pipe, lambda _: step.take(), settled)
    if job.checked:
        try:
            step.check()
        except Exception as error:
            send(failure(error))
        else:
            send({})


def failure(error: Exception) -> dict[str, object]:
    match error:
        case WrongResultError():
            return failed(Outcome.WRONG_RESULT, error)
        case MemoryError() | torch.OutOfMemoryError():
            return failed(Outcome.OUT_OF_MEMORY, error)
        case WorkloadError():
            return {"outcome": Outcome.SKIPPED, "reason": str(error)}
        case _:
            return failed(Outcome.CRASHED, error)


def make_step(case: Case, *, checked: bool) -> TimedStep:
    """The thread count is always the first candidate, so that sides do not differ in that.

    With `checked`, the gradients are first compared with the oracle's. Raises WrongResultError and WorkloadError.
    """
    variant = variant_of(case.variant)
    if variant.per_rank:
        raise WorkloadError(f"variants: {str(case.variant)!r} has a process for each device; a gate runs one a side")
    torch.set_num_threads(candidates(case, variant)[0])
    workload = resolve(case.workload, case.data)
    if checked:
        refuse_wrong_result(case, error_against_oracle(open_session(case, workload=workload)))
    session = open_session(case, workload=workload)
    return TimedStep(
        undisturbed(session.step, make_clock(session.placement.devices)),
        session.trials_left,
        lambda: refuse_wrong_result(case, error_of_trained(session)),
    )


def _prepared(job: LockstepJob, side: Side, send: Send) -> TimedStep | None:
    """Warm up, unless the scheme chooses its dispatch, and pin. If the step fails, send that and return None."""
    use_folder(Path(side.folder))
    try:
        step = make_step(job.case, checked=job.checked)
        if job.case.variant.chooses_dispatch:
            pin(job.cores)  # the wrapper chooses for the cores that are measured, in the steps that follow
        else:
            settle(step.take, step.trials_left, max_s=WARMUP_S)
        step_s = step.take()
    except Exception as error:
        send(failure(error))
    else:
        pin(job.cores)
        gc.collect()  # then none comes by itself for long; one that the step asks for costs what it costs its users
        send({"steps_s": [step_s]})
        return step
    return None
