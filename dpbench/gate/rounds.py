"""One round of tier 1, and the ratios of head to base that it gives.

A new child process times base, its twin and head in blocks. Blocks become contrasts:

    head   log head - (log base + log twin) / 2     its variance is 3/4 of that of log head - log base
    twin   log twin - log base                      the noise of this machine, in the same minutes

Of each side's steps three quantities are compared:

    median   of the blocks                     block by block between neighbours in time: a slower minute cancels
    mean     of all steps of the round         it sees what is costly in few steps, such as a garbage collection
    later    of the last quarter of blocks     over the first quarter: it sees what costs more with every step

Processes differ more than the blocks of one process, so rounds are the sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import psutil
from numpy.typing import NDArray
from pydantic import Field

from dpbench.engine.messages import (
    LockstepJob,
    LockstepJobs,
    LockstepRound,
    LockstepRounds,
    SideName,
    StartUpJob,
    Timed,
)
from dpbench.engine.task import Task
from dpbench.errors import GateError
from dpbench.gate.settings import Benchmark, Cores, limit_s
from dpbench.gate.sides import Sides
from dpbench.jobs.count import LIMIT_S
from dpbench.records.record import Environment, Outcome
from dpbench.text.validated import Frozen

LOCKSTEP = Task("dpbench.jobs.lockstep_child", LockstepRounds)
BLOCKS = 80
"""Blocks of each side, unless its step is long.

To start a round takes seconds, so many blocks are cheap: with 80 instead of 20, the ratios of two rounds differ by a
third as much.
"""
BLOCK_S = 0.005
"""Seconds of one block.

A block is compared with those beside it, and neighbours change the speed of a shared core within a hundredth of a
second. So blocks are short. `results/gate/figures.md` compares rounds.
"""
FORKS = 5
"""Forks of each side in a start-up."""
_CPU_SAMPLE_S = 0.2
_LEAST_BLOCKS = 8
"""Fewer blocks have no quarters, and a mean that one disturbance decides."""
_QUARTER = 4

Finite = Annotated[float, Field(allow_inf_nan=False)]
Blocks = Sequence[Sequence[float]]
"""The seconds of each step, block by block."""


class LogRatios(Frozen):
    """One quantity in one round: the logarithms of head's and of the twin's ratio to base."""

    head: Finite
    twin: Finite


class RoundRatio(Frozen):
    """`median` has the ratios of the median block, `mean` those of all blocks, and `later` their growth.

    `mean` and `later` are None if the round has too few blocks. `base_s` is the median over the blocks of base and its
    twin, `head_s` that over the blocks of head. `set_up` is the time of a borrowed benchmark's set-up by base's.
    """

    median: LogRatios
    base_s: Finite
    head_s: Finite
    cores: str
    mean: LogRatios | None = None
    later: LogRatios | None = None
    set_up: Finite | None = None


@dataclass(frozen=True)
class SuiteRound:
    """`ratios` and `notes` are by benchmark."""

    ratios: dict[str, RoundRatio]
    environment: Environment | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


def take_round(benchmarks: Sequence[Benchmark], sides: Sides, number: int, lanes: tuple[str, ...]) -> SuiteRound:
    """`lanes` are for benchmarks that leave their devices to the machine.

    Raise GateError, with the side and the reason, if a benchmark fails.
    """
    usable = sorted(psutil.Process().cpu_affinity())
    quietest = (quietest_core(usable),)
    jobs, start_ups = list[LockstepJob](), list[StartUpJob]()
    for benchmark in benchmarks:
        job: dict[str, Any] = {
            "case": benchmark.case(len(usable), lanes),
            "sides": sides.of(benchmark.name),
            "cores": quietest if benchmark.cores is Cores.ONE else tuple(usable),
            "timeout_s": limit_s(benchmark),
            "seed": number,
        }
        if benchmark.timed is Timed.STEP:
            checked = number == 0  # a commit computes the same in every round
            jobs.append(LockstepJob(benchmark=benchmark.name, blocks=BLOCKS, block_s=BLOCK_S, checked=checked, **job))
        else:
            start_ups.append(StartUpJob(benchmarks={benchmark.name: benchmark.timed}, forks=FORKS, **job))
    start_ups = _with_shared_forks(start_ups)
    request = LockstepJobs(jobs=tuple(jobs), start_ups=tuple(start_ups))
    forks = len(SideName) * (FORKS + 1) * len(start_ups)
    ended = LOCKSTEP.run(request, sum(job.timeout_s for job in jobs) + LIMIT_S * forks, sides.launch)
    if (taken := ended.answer) is None:
        raise GateError(f"a round failed: {ended.why}")
    for answer in taken.rounds:
        if answer.outcome is not Outcome.OK:
            side = f"{'base' if answer.side is SideName.TWIN else answer.side}: " if answer.side else ""
            raise GateError(f"{side}{answer.benchmark}: {answer.outcome.replace('_', ' ')}: {answer.reason}")
    notes = {answer.benchmark: f"round {number + 1}: {answer.reason}" for answer in taken.rounds if answer.reason}
    return SuiteRound({answer.benchmark: ratio_of(answer) for answer in taken.rounds}, taken.environment, notes)


def _with_shared_forks(jobs: Sequence[StartUpJob]) -> list[StartUpJob]:
    shared: dict[str, StartUpJob] = {}
    for job in jobs:
        start_up = job.model_dump_json(exclude={"benchmarks"})
        other_benchmarks = shared[start_up].benchmarks if start_up in shared else {}
        shared[start_up] = job.model_copy(update={"benchmarks": {**other_benchmarks, **job.benchmarks}})
    return list(shared.values())


def quietest_core(usable: Sequence[int]) -> int:
    """The core that was least busy in a fifth of a second."""
    busy = psutil.cpu_percent(_CPU_SAMPLE_S, percpu=True)
    return min(usable, key=lambda core: busy[core])


def ratio_of(lockstep_round: LockstepRound) -> RoundRatio:
    """Reduce a round whose outcome is OK."""
    sides = SideName.BASE, SideName.TWIN, SideName.HEAD
    base, twin, head = (_block_logs(lockstep_round.times_s[side]) for side in sides)
    heads, twins = head - (base + twin) / 2, twin - base
    has_quarters = len(head) >= _LEAST_BLOCKS
    base_mean, twin_mean, head_mean = (_log_mean(lockstep_round.times_s[side]) for side in sides)
    mean = LogRatios(head=head_mean - (base_mean + twin_mean) / 2, twin=twin_mean - base_mean)
    return RoundRatio(
        median=LogRatios(head=float(np.median(heads)), twin=float(np.median(twins))),
        base_s=float(np.exp(np.median([base, twin]))),
        head_s=float(np.exp(np.median(head))),
        cores=lockstep_round.cores,
        mean=mean if has_quarters else None,
        later=LogRatios(head=_growth(heads), twin=_growth(twins)) if has_quarters else None,
        set_up=lockstep_round.set_up,
    )


def _block_logs(blocks: Blocks) -> NDArray[np.float64]:
    """Logarithms of each block's mean step time.

    The mean, because a step may leave work to the next one, and that is part of its cost.
    """
    return np.log([np.mean(block) for block in blocks])


def _log_mean(blocks: Blocks) -> float:
    return float(np.log(np.mean([step_s for block in blocks for step_s in block])))


def _growth(logs: NDArray[np.float64]) -> float:
    quarter = len(logs) // _QUARTER
    return float(np.median(logs[-quarter:]) - np.median(logs[:quarter]))
