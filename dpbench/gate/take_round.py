"""One round of tier 1: a new child process times base, its twin and head in blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import ValidationError

from dpbench.errors import GateError
from dpbench.gate.ratio import RoundRatio, ratio_of
from dpbench.gate.settings import Benchmark, Cores
from dpbench.results.record import Environment, Outcome
from dpbench.run.interpret import ending, last_lines
from dpbench.run.messages import LockstepJob, LockstepJobs, LockstepRounds, Side, SideName
from dpbench.run.runner import Launcher
from dpbench.run.start import child_command

LOCKSTEP = child_command("dpbench.run.child.lockstep")
BLOCKS = 20
BLOCK_S = 0.01
"""Seconds of one block.

A block is compared with those beside it, and neighbours change the speed of a shared core within a hundredth of a
second. So blocks are short. Each block refills the caches, which takes a hundredth of it, for all sides alike.
"""
_JOB_TIMEOUT_S = 120.0
_CPU_SAMPLE_S = 0.2


@dataclass(frozen=True)
class Sides:
    """The folders of the two commits, and by benchmark the variables of head's environment."""

    base: Path
    head: Path
    head_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, benchmark: str) -> dict[SideName, Side]:
        base = Side(folder=str(self.base))
        head = Side(folder=str(self.head), environment=dict(self.head_environment.get(benchmark, {})))
        return {SideName.BASE: base, SideName.TWIN: base, SideName.HEAD: head}


@dataclass(frozen=True)
class SuiteRound:
    """One round of each benchmark, by name, and the machine that measured it."""

    ratios: dict[str, RoundRatio]
    environment: Environment | None = None


def take_round(
    benchmarks: Sequence[Benchmark], sides: Sides, number: int, lanes: tuple[str, ...], launch: Launcher
) -> SuiteRound:
    """Measure round `number` of these benchmarks.

    `lanes` are for the benchmarks that leave their devices to the machine. Raises GateError, with the side and the
    reason, if a benchmark fails.
    """
    usable = sorted(psutil.Process().cpu_affinity())
    quietest = (quietest_core(usable),)
    jobs = tuple(
        LockstepJob(
            benchmark=benchmark.name,
            case=benchmark.case(len(usable), lanes),
            sides=sides.of(benchmark.name),
            cores=quietest if benchmark.cores is Cores.ONE else tuple(usable),
            blocks=BLOCKS,
            block_s=BLOCK_S,
            timeout_s=_JOB_TIMEOUT_S,
            seed=number,
            checked=number == 0,  # a commit computes the same in every round
        )
        for benchmark in benchmarks
    )
    end = launch(LOCKSTEP, LockstepJobs(jobs=jobs).model_dump_json(), _JOB_TIMEOUT_S * len(jobs))
    try:
        taken = LockstepRounds.model_validate_json(end.record)
    except ValidationError:
        raise GateError(": ".join([f"a round failed: {ending(end)}", *last_lines(end.tail)[-1:]])) from None
    for found in taken.rounds:
        if found.outcome is not Outcome.OK:
            side = f"{'base' if found.side is SideName.TWIN else found.side}: " if found.side else ""
            raise GateError(f"{side}{found.benchmark}: {found.outcome.replace('_', ' ')}: {found.reason}")
    return SuiteRound({found.benchmark: ratio_of(found) for found in taken.rounds}, taken.environment)


def quietest_core(usable: Sequence[int]) -> int:
    """Return the usable core that was least busy in a fifth of a second."""
    busy = psutil.cpu_percent(_CPU_SAMPLE_S, percpu=True)
    return min(usable, key=lambda core: busy[core])
