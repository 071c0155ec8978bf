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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic

from dpbench.cases.host import ranges
from dpbench.cases.names import borrowed
from dpbench.engine.child import answer, loading
from dpbench.engine.messages import LockstepJob, LockstepJobs, LockstepRound, LockstepRounds, SideName
from dpbench.engine.wrapper_of import scratch_of
from dpbench.jobs.borrowed import preload, serve_borrowed
from dpbench.jobs.forks import Block, Fork, SideError, forked
from dpbench.measure.environment import host_environment, read_environment
from dpbench.records.record import Outcome

# All that a side needs beside its own wrapper, without what the wrapper may import.
_PRELOADED = ("dpbench.jobs.lockstep_side", "dpbench.jobs.startup")
_FOR_STEPS = "torch._dynamo"
"""torch.optim imports it for the first optimizer."""

_SIDE_S = 3.0
"""Seconds of one side's blocks, above which a round has fewer of them."""
_LEAST_BLOCKS = 10

_AGREE_SHARE, _AGREE_S = 0.1, 50e-6
"""Up to this share of the longer block of base or head, and these seconds, both clocks agree on head.

With equal code their difference was 0.36 of that at most, in 126 side-rounds of six benchmarks (2 shared cores, load
averages of 5 and 9; upper quartile, less that of the other two sides).
"""


def respond(text: str) -> LockstepRounds:
    request = LockstepJobs.model_validate_json(text)
    own = [job for job in request.jobs if borrowed(job.case.workload) is None]
    lent = [job for job in request.jobs if job not in own]
    preload({suite for job in lent for suite, _ in [borrowed(job.case.workload) or ("", "")]})
    rounds = [_round(job) for job in lent]  # these need no torch
    if not own and not request.start_ups:
        return LockstepRounds(rounds=tuple(rounds), environment=host_environment())
    with loading():
        for module in _PRELOADED:
            import_module(module)
    from dpbench.jobs.startup import start_up_rounds

    for start_up in request.start_ups:  # before steps: later, this process has imported more than a user's has
        rounds += start_up_rounds(start_up)
    with loading():
        import_module(_FOR_STEPS)
    rounds += [_round(job) for job in own]
    # The environment comes last: reading it initialises CUDA, and a process with CUDA must not fork.
    return LockstepRounds(rounds=tuple(rounds), environment=read_environment())


def _round(job: LockstepJob) -> LockstepRound:
    cores = ranges(sorted(job.cores))
    for resident in (True, False):
        try:
            times_s, note = _alternate(job, _side_by_side if resident else _one_at_a_time)
        except FirstCallError:
            continue
        except SideError as error:
            if resident and error.outcome is Outcome.OUT_OF_MEMORY:
                continue  # the models may fit one at a time
            return LockstepRound(
                benchmark=job.benchmark, outcome=error.outcome, reason=error.reason, side=error.side, cores=cores
            )
        return LockstepRound(
            benchmark=job.benchmark, outcome=Outcome.OK, reason=note, times_s=times_s, cores=cores, resident=resident
        )
    raise AssertionError("unreachable: the last attempt returns")


class FirstCallError(Exception):
    """The benchmark measures the first call of a process, so each call needs a process of its own."""


TakeBlock = Callable[[SideName, int], tuple[Block, float]]


def _alternate(
    job: LockstepJob, opened: Callable[[LockstepJob], AbstractContextManager[tuple[float, TakeBlock]]]
) -> tuple[dict[SideName, tuple[Block, ...]], str | None]:
    """`opened` yields the seconds of a step and a function that takes a block; return blocks and a note."""
    order, rng = list(job.sides), Random(job.seed)
    times_s: dict[SideName, list[Block]] = {name: [] for name in order}
    outsides_s: dict[SideName, list[float]] = {name: [] for name in order}
    with opened(job) as (step_s, take_block):
        steps = max(1, math.ceil(job.block_s / step_s))
        for _ in range(_blocks(job, step_s)):
            rng.shuffle(order)
            for name in order:
                block, outside_s = take_block(name, steps)
                times_s[name].append(block)
                outsides_s[name].append(outside_s)
    note = None
    if borrowed(job.case.workload) is None:  # a borrowed benchmark sets itself up between its samples, at its leisure
        times_s[SideName.HEAD], note = with_work_between(times_s, outsides_s)
    return {name: tuple(times_s[name]) for name in job.sides}, note


def with_work_between(
    times_s: Mapping[SideName, Sequence[Block]], outsides_s: Mapping[SideName, Sequence[float]]
) -> tuple[list[Block], str | None]:
    """Head's blocks, lengthened if much of a block is between its steps, and a note that says so.

    Threads that a step leaves behind run between the steps:

        step's own clock   ├── step ──┤      ├── step ──┤
        outside clock    ├──────────────── block ─────────────┤

    `outsides_s` has this process's own times of the blocks. Base and its twin show how long requests take. The upper
    quartile decides, so a few disturbed blocks do not count.
    """
    heads = list(times_s[SideName.HEAD])
    between_s = {
        name: [outside_s - sum(block) for block, outside_s in zip(times_s[name], outsides_s[name], strict=True)]
        for name in times_s
    }
    usual_s = max(0.0, _upper_quartile([*between_s[SideName.BASE], *between_s[SideName.TWIN]]))
    more_s = _upper_quartile(between_s[SideName.HEAD]) - usual_s
    block_s = median(map(sum, heads))
    longer_s = max(block_s, median(map(sum, times_s[SideName.BASE])))
    if len(heads) < 4 or more_s <= _AGREE_SHARE * longer_s + _AGREE_S:
        return heads, None
    lengthened = [
        tuple(step_s * (1 + max(0.0, gap_s - usual_s) / sum(block)) for step_s in block)
        for block, gap_s in zip(heads, between_s[SideName.HEAD], strict=True)
    ]
    took = f"blocks of {block_s * 1e3:.3g} ms by their steps took {more_s * 1e3:.3g} ms more by the gate's clock"
    return lengthened, f"head's {took}, which counts as the steps' time: work goes on behind the steps"


def _upper_quartile(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) * 3 // 4]


def _blocks(job: LockstepJob, step_s: float) -> int:
    return min(job.blocks, max(_LEAST_BLOCKS, math.ceil(_SIDE_S / step_s)))


@contextmanager
def _side_by_side(job: LockstepJob) -> Iterator[tuple[float, TakeBlock]]:
    with ExitStack() as stack:
        forks = {name: stack.enter_context(_forked(job, name)) for name in job.sides}
        ready = [fork.receive() for fork in forks.values()]
        if not ready[0].number:
            raise FirstCallError
        first, *others = forks.values()
        way = _settle(job, first)
        for fork in others:  # in turn: the wrapper's trials need the cores for themselves
            _settle(job, fork, way)
        (step_s,), number = ready[0].steps_s, ready[0].number
        yield step_s, lambda name, steps: forks[name].take(steps, number)


@contextmanager
def _one_at_a_time(job: LockstepJob) -> Iterator[tuple[float, TakeBlock]]:
    def take_block(name: SideName, steps: int) -> tuple[Block, float]:
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

    return forked(name, lambda pipe, pid: serve(job, side, pipe, pid), job.timeout_s, folders=folders)


if __name__ == "__main__":
    answer(respond)
