"""One side of a lockstep: a fork that holds one commit's step, and takes it when it is told to.

coordinator                             side
  │ <──── {"steps_s": [0.006]} ───────    ready, warmed up; or {"outcome": ..., "reason": ...}, and it ends
  │ ───── {"steps": 2} ───────────────>
  │ <──── {"steps_s": [0.006, ...]} ──    the block
"""
# MERGED-DOC measure.lockstep_step: """A case as a step to take by turns with another process'."""

import gc
import json
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from dpbench.measure.clock import make_clock
from dpbench.measure.fairness import error_against_oracle
from dpbench.measure.measurement import refuse_wrong_result
from dpbench.measure.session import Session, placement_of
from dpbench.measure.threads import candidates
from dpbench.measure.undisturbed import undisturbed
from dpbench.results.record import Outcome
from dpbench.run.messages import LockstepJob, Side
from dpbench.run.process_tree import die_with_parent
from dpbench.run.wrapper_of import use_tree
from dpbench.sweep.case import Case
from dpbench.variants.registry import variant_of
from dpbench.workloads.resolve import resolve


def make_step(case: Case, *, checked: bool) -> Callable[[], float]:
    """Takes a step, of a variant of one process, and answers how many seconds it took.

    `checked`, its gradients are held against the oracle's beforehand: raises WrongResultError.

    Of thread counts worth trying it is always the first: two processes that each chose their own would differ in that.
    """
    variant, workload = variant_of(case.variant), resolve(case.workload, case.data)
    placement = placement_of(case, variant, rank=0, ranks=1)
    torch.set_num_threads(candidates(case, variant)[0])
    if checked:
        refuse_wrong_result(case, error_against_oracle(case, workload, variant, placement))
    return undisturbed(Session(case, workload, variant, placement).step, make_clock(placement.devices))


_WARMUP_S = 0.2
_BALLAST, _MOST_BALLAST_BYTES = 64, 4096


def serve(job: LockstepJob, side: Side, pipe: Connection, parent_pid: int) -> None:
    """Make ready, then answer for each block until the other end is closed; the coordinator ends a side that hangs."""
    die_with_parent(parent_pid)
    os.environ.update(side.environment)
    answer = _answering(pipe)
    ballast = _shifted_heap()  # noqa: F841  # held until the end
    step = _made_ready(job, side, answer)
    if step is None:
        return
    try:
        while True:
            steps = json.loads(pipe.recv_bytes())["steps"]
            answer({"steps_s": [step() for _ in range(steps)]})
    except EOFError:
        return
    except Exception as error:
        answer(_failed(Outcome.CRASHED, error))


Answer = Callable[[dict[str, object]], None]


def _answering(pipe: Connection) -> Answer:
    return lambda told: pipe.send_bytes(json.dumps(told).encode())


def _shifted_heap() -> list[bytearray]:
    """Memory to hold on to, of random size: where tensors come to lie changes a step's time by percents.

    Forks of one process would allocate alike. Base and its twin would then share a layout that head, by a name of
    another length, does not; and their ratio would tell nothing of it.
    """
    return [bytearray(1 + int.from_bytes(os.urandom(2)) % _MOST_BALLAST_BYTES) for _ in range(_BALLAST)]


def _made_ready(job: LockstepJob, side: Side, answer: Answer) -> Callable[[], float] | None:
    """Takes a step and answers its seconds; None where it cannot be taken, which is then told."""
    import torch

    use_tree(Path(side.tree))
    try:
        from dpbench.measure.measurement import WrongResultError
        from dpbench.run.child.lockstep_side import make_step
        from dpbench.workloads.workload import WorkloadError
    except Exception as error:
        answer(_failed(Outcome.CRASHED, error))
        return None
    try:
        step = make_step(job.case, checked=job.checked)
        step_s = _warmed_up(step)
    except WrongResultError as error:
        answer(_failed(Outcome.WRONG_RESULT, error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        answer(_failed(Outcome.OUT_OF_MEMORY, error))
    except WorkloadError as error:
        answer({"outcome": Outcome.SKIPPED, "reason": str(error)})
    except Exception as error:
        answer(_failed(Outcome.CRASHED, error))
    else:
        _pin(job.cores)
        gc.freeze()  # what there is now stays, so that collections look at the step's own garbage alone
        answer({"steps_s": [step_s]})
        return step
    return None


def _pin(cores: tuple[int, ...]) -> None:
    """All threads; not before, as on one core the sides would take three times as long to make ready."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _warmed_up(step: Callable[[], float]) -> float:
    from dpbench.measure.stopping import WarmUp

    warmup, begin_s, step_s = WarmUp(max_s=_WARMUP_S), time.monotonic(), 0.0
    while not warmup.done:
        step_s = step()
        warmup.add(step_s, time.monotonic() - begin_s)
    return step_s


def _failed(outcome: Outcome, error: BaseException) -> dict[str, object]:
    lines = str(error).strip().splitlines() or [""]
    return {"outcome": outcome, "reason": f"{type(error).__name__}: {lines[0]}"}
