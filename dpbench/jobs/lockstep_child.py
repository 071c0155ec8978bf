"""The child of a gate's round: LockstepJobs on stdin, LockstepRounds on the record pipe.

    python -m dpbench.jobs.lockstep_child --record-fd N --parent-pid P

parent ──launches──> this process: imports torch once a round, if a job needs it, and uses it for nothing else
                        ├──forks──> start-ups, each in a fork of its own: startup.py
                        │
                        ├──forks──> base    the three sides alternate: each takes a block of steps, in random order,
                        ├──forks──> twin    while the other two sleep
                        └──forks──> head

All sides are pinned to the same cores. As forks of one process they share addresses of libraries and the seed of
hashes. If the three models do not fit into a GPU's memory together, each block runs in a fork of its own. So does each
call if a benchmark of asv or pytest measures a process' first one.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from time import monotonic

from dpbench.cases.host import ranges
from dpbench.cases.names import borrowed
from dpbench.engine.child import answer, loading
from dpbench.engine.messages import LockstepJob, LockstepJobs, LockstepRound, LockstepRounds, SideName
from dpbench.engine.wrapper_of import scratch_of
from dpbench.jobs.borrowed import preload, serve_borrowed
from dpbench.jobs.forks import Block, Fork, SideError, Taken, forked
from dpbench.jobs.hidden_work import set_up_ratio, with_hidden_work
from dpbench.measure.environment import host_environment, read_environment
from dpbench.records.record import Outcome

# All that a side needs beside its own wrapper, without what the wrapper may import.
_PRELOADED = ("dpbench.jobs.lockstep_side", "dpbench.jobs.startup")
_FOR_STEPS = "torch._dynamo"
"""torch.optim imports it for the first optimizer."""

_SIDE_S = 3.0
"""Seconds of one side's blocks, above which a round has fewer of them."""
_LEAST_BLOCKS = 10


def respond(request: LockstepJobs) -> LockstepRounds:
    own_jobs = [job for job in request.jobs if borrowed(job.case.workload) is None]
    borrowed_jobs = [job for job in request.jobs if job not in own_jobs]
    preload({suite for job in borrowed_jobs for suite, _ in [borrowed(job.case.workload) or ("", "")]})
    rounds = [_round(job) for job in borrowed_jobs]  # these need no torch
    if not own_jobs and not request.start_ups:
        return LockstepRounds(rounds=tuple(rounds), environment=host_environment())
    with loading():
        for module in _PRELOADED:
            import_module(module)
    from dpbench.jobs.startup import start_up_rounds

    for start_up in request.start_ups:  # before steps: later, this process has imported more than a user's has
        rounds += start_up_rounds(start_up)
    with loading():
        import_module(_FOR_STEPS)
    rounds += [_round(job) for job in own_jobs]
    # The environment comes last: reading it initialises CUDA, and a process with CUDA must not fork.
    return LockstepRounds(rounds=tuple(rounds), environment=read_environment())


def _round(job: LockstepJob) -> LockstepRound:
    cores = ranges(sorted(job.cores))
    for resident in (True, False):
        try:
            times_s, note, set_up = _alternate(job, _side_by_side if resident else _one_at_a_time)
        except FirstCallError:
            continue
        except SideError as error:
            if resident and error.outcome is Outcome.OUT_OF_MEMORY:
                continue  # the models may fit one at a time
            return LockstepRound(
                benchmark=job.benchmark, outcome=error.outcome, reason=error.reason, side=error.side, cores=cores
            )
        return LockstepRound(
            benchmark=job.benchmark,
            outcome=Outcome.OK,
            reason=note,
            times_s=times_s,
            set_up=set_up,
            cores=cores,
            resident=resident,
        )
    raise AssertionError("unreachable: the last attempt returns")


class FirstCallError(Exception):
    """The benchmark measures the first call of a process, so each call needs a process of its own."""


TakeBlock = Callable[[SideName, int], Taken]


def _alternate(
    job: LockstepJob, opened: Callable[[LockstepJob], AbstractContextManager[tuple[float, TakeBlock]]]
) -> tuple[dict[SideName, tuple[Block, ...]], str | None, float | None]:
    """`opened` yields the seconds of a step and a function that takes a block.

    Return blocks, a note, and by how much a borrowed benchmark's set-up changed.
    """
    order, rng = list(job.sides), Random(job.seed)
    taken: dict[SideName, list[Taken]] = {name: [] for name in order}
    with opened(job) as (step_s, take_block):
        steps = max(1, math.ceil(job.block_s / step_s))
        for _ in range(_blocks(job, step_s)):
            rng.shuffle(order)
            for name in order:
                taken[name].append(take_block(name, steps))
    is_borrowed = borrowed(job.case.workload) is not None
    heads, note = with_hidden_work(taken, is_borrowed=is_borrowed)
    times_s = {name: tuple(block.steps_s for block in taken[name]) for name in job.sides}
    return times_s | {SideName.HEAD: tuple(heads)}, note, set_up_ratio(taken) if is_borrowed else None


def _blocks(job: LockstepJob, step_s: float) -> int:
    return min(job.blocks, max(_LEAST_BLOCKS, math.ceil(_SIDE_S / step_s)))


@contextmanager
def _side_by_side(job: LockstepJob) -> Iterator[tuple[float, TakeBlock]]:
    with ExitStack() as stack:
        forks = {name: stack.enter_context(_forked(job, name)) for name in job.sides}
        ready = [fork.receive() for fork in forks.values()]
        if not ready[0].number:
            raise FirstCallError
        first, *other_forks = forks.values()
        way = _settle(job, first)
        for fork in other_forks:  # in turn: the wrapper's trials need the cores for themselves
            _settle(job, fork, way)
        (step_s,), number = ready[0].steps_s, ready[0].number
        yield step_s, lambda name, steps: forks[name].take(steps, number, [*forks.values()])
        for fork in forks.values() if job.checked and borrowed(job.case.workload) is None else ():
            fork.check()


@contextmanager
def _one_at_a_time(job: LockstepJob) -> Iterator[tuple[float, TakeBlock]]:
    def take_block(name: SideName, steps: int) -> Taken:
        with _forked(job, name) as fork:
            fork.receive()
            _settle(job, fork, way)
            return fork.take(steps)

    start_s = monotonic()
    with _forked(job, next(iter(job.sides))) as fork:
        ready = fork.receive()
        way = _settle(job, fork)
    # A first call takes as long as its process, and has the least blocks.
    step_s = ready.steps_s[0] if ready.number else max(_SIDE_S / _LEAST_BLOCKS, monotonic() - start_s)
    yield step_s, take_block


def _settle(job: LockstepJob, fork: Fork, way: str = "") -> str:
    return fork.settle(way) if job.case.variant.chooses_dispatch else ""


def _forked(job: LockstepJob, name: SideName) -> AbstractContextManager[Fork]:
    side, folders = job.sides[name], list[Path]()
    if borrowed(job.case.workload) is not None:
        serve, folders = serve_borrowed, [scratch_of(Path(side.folder))]
    else:
        from dpbench.jobs.lockstep_side import serve  # imports torch, so not at the top: see `_PRELOADED`

    return forked(name, lambda pipe: serve(job, side, pipe), job.timeout_s, folders=folders)


if __name__ == "__main__":
    answer(respond)
