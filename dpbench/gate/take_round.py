"""One round of tier 1: a new child process times base, its twin and head in blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import ValidationError

from dpbench.cases.case import Case
from dpbench.errors import GateError
from dpbench.gate.ratio import RoundRatio, ratio_of
from dpbench.gate.settings import LIMIT_S, Benchmark, BorrowedBenchmark, Cores
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import LockstepJob, LockstepJobs, LockstepRounds, Side, SideName, StartUpJob, Timed
from dpbench.processes.start import child_command
from dpbench.records.record import Environment, Outcome

LOCKSTEP = child_command("dpbench.processes.child.lockstep")
BLOCKS = 80
"""Blocks of each side, unless its step is long.

To start a round takes seconds, so many blocks are cheap: with 80 instead of 20, the ratios of two rounds differ by a
third as much.
"""
BLOCK_S = 0.005
"""Seconds of one block.

A block is compared with those beside it, and neighbours change the speed of a shared core within a hundredth of a
second. So blocks are short. `results/gate/figures.md` compares rounds. Each block refills the caches, for all sides
alike.
"""
FORKS = 5
"""Forks of each side in a start-up."""
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
    """One round of each benchmark, by name, the machine that measured it, and notes, by benchmark too."""

    ratios: dict[str, RoundRatio]
    environment: Environment | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


def take_round(
    benchmarks: Sequence[Benchmark], sides: Sides, number: int, lanes: tuple[str, ...], launch: Launcher
) -> SuiteRound:
    """Measure round `number` of these benchmarks.

    `lanes` are for the benchmarks that leave their devices to the machine. Raises GateError, with the side and the
    reason, if a benchmark fails.
    """
    usable = sorted(psutil.Process().cpu_affinity())
    quietest = (quietest_core(usable),)
    jobs, start_ups = list[LockstepJob](), list[StartUpJob]()
    for benchmark in benchmarks:
        case, cores = benchmark.case(len(usable), lanes), quietest if benchmark.cores is Cores.ONE else tuple(usable)
        if benchmark.timed is Timed.STEP:
            jobs.append(_step_job(benchmark, case, sides, cores, number))
        else:
            _add_start_up(start_ups, _start_up_job(benchmark, case, sides, cores, number))
    request = LockstepJobs(jobs=tuple(jobs), start_ups=tuple(start_ups))
    forks = len(SideName) * (FORKS + 1) * len(start_ups)
    end = launch(LOCKSTEP, request.model_dump_json(), sum(job.timeout_s for job in jobs) + LIMIT_S * forks)
    try:
        taken = LockstepRounds.model_validate_json(end.record)
    except ValidationError:
        raise GateError(": ".join([f"a round failed: {ending(end)}", *last_lines(end.tail)[-1:]])) from None
    for found in taken.rounds:
        if found.outcome is not Outcome.OK:
            side = f"{'base' if found.side is SideName.TWIN else found.side}: " if found.side else ""
            raise GateError(f"{side}{found.benchmark}: {found.outcome.replace('_', ' ')}: {found.reason}")
    notes = {found.benchmark: f"round {number + 1}: {found.reason}" for found in taken.rounds if found.reason}
    return SuiteRound({found.benchmark: ratio_of(found) for found in taken.rounds}, taken.environment, notes)


def _step_job(benchmark: Benchmark, case: Case, sides: Sides, cores: tuple[int, ...], number: int) -> LockstepJob:
    return LockstepJob(
        benchmark=benchmark.name,
        case=case,
        sides=sides.of(benchmark.name),
        cores=cores,
        blocks=BLOCKS,
        block_s=BLOCK_S,
        timeout_s=benchmark.limit_s if isinstance(benchmark, BorrowedBenchmark) else LIMIT_S,
        seed=number,
        checked=number == 0,  # a commit computes the same in every round
    )


def _start_up_job(benchmark: Benchmark, case: Case, sides: Sides, cores: tuple[int, ...], number: int) -> StartUpJob:
    return StartUpJob(
        benchmarks={benchmark.name: benchmark.timed},
        case=case,
        sides=sides.of(benchmark.name),
        cores=cores,
        forks=FORKS,
        timeout_s=LIMIT_S,
        seed=number,
    )


def _add_start_up(jobs: list[StartUpJob], new: StartUpJob) -> None:
    """Add a job. Benchmarks of one start-up share its forks."""
    for i, job in enumerate(jobs):
        if (job.case, job.sides, job.cores) == (new.case, new.sides, new.cores):
            jobs[i] = job.model_copy(update={"benchmarks": {**job.benchmarks, **new.benchmarks}})
            return
    jobs.append(new)


def quietest_core(usable: Sequence[int]) -> int:
    """Return the usable core that was least busy in a fifth of a second."""
    busy = psutil.cpu_percent(_CPU_SAMPLE_S, percpu=True)
    return min(usable, key=lambda core: busy[core])
