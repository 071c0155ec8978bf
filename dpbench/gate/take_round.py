"""Tier 1's hand: a round of blocks of base, its twin and head, by a child that is launched for it."""

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
"""Short: neighbours change what a core can do from one hundredth of a second to the next, and a block is held against
those beside it. Filling the caches again takes a hundredth of a block, of every side's alike."""
_JOB_TIMEOUT_S = 120.0
_LOOK_AROUND_S = 0.2


@dataclass(frozen=True)
class Sides:
    """The folders of the two commits, and what head's processes find in their environment, by benchmark."""

    base: Path
    head: Path
    head_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, benchmark: str) -> dict[SideName, Side]:
        base = Side(folder=str(self.base))
        head = Side(folder=str(self.head), environment=dict(self.head_environment.get(benchmark, {})))
        return {SideName.BASE: base, SideName.TWIN: base, SideName.HEAD: head}


@dataclass(frozen=True)
class Taken:
    """A round of each benchmark, by name, and where it was taken."""

    ratios: dict[str, RoundRatio]
    environment: Environment | None = None


def take_round(
    benchmarks: Sequence[Benchmark], sides: Sides, number: int, lanes: tuple[str, ...], launch: Launcher
) -> Taken:
    """One of each benchmark. Raises GateError where any of them fails, with the side and its reason."""
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
            checked=number == 0,  # what a commit computes is the same in every round
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
    return Taken({found.benchmark: ratio_of(found) for found in taken.rounds}, taken.environment)


def quietest_core(usable: Sequence[int]) -> int:
    """That of the usable ones which did least in a fifth of a second."""
    busy = psutil.cpu_percent(_LOOK_AROUND_S, percpu=True)
    return min(usable, key=lambda core: busy[core])
