"""What two commits' step times side by side look like: rounds of blocks, taken in turns."""
# MERGED-DOC run.job: """What the parent asks of a child: JSON on its stdin."""
# MERGED-DOC run.count_job: """What is asked of the child that counts, and what it answers: JSON on its stdin and on its record pipe."""
# MERGED-DOC run.lockstep_job: """What is asked of the child that takes two commits' steps in turns, and what it answers."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dpbench.results.counts import CountRecord
from dpbench.results.record import Environment, Outcome
from dpbench.sweep.case import Case
from dpbench.sweep.names import Data

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SideName(StrEnum):
    """TWIN is BASE once more, in a process of its own: what differs between the two is noise."""

    BASE = "base"
    TWIN = "twin"
    HEAD = "head"


class LockstepRound(BaseModel):
    """One benchmark in one round: fresh processes, one a side.

    `times_s` has for each side the seconds of every step, by block; in block i every side had its turn, in random
    order. `cores` are those they were pinned to, as in ``0-3,8``. `resident` is whether the sides' models lay in memory
    side by side; else each block had a process of its own. A failed round has no times, names the `side` at fault where
    there is one, and has the reason.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: str
    outcome: Outcome
    reason: str | None = None
    side: SideName | None = None
    times_s: dict[SideName, tuple[tuple[Seconds, ...], ...]] = Field(default_factory=dict)
    cores: str = ""
    resident: bool = True

    @model_validator(mode="after")
    def _only_ok_has_numbers(self) -> Self:
        if self.outcome is Outcome.OK:
            lengths = {len(self.times_s.get(side, ())) for side in SideName}
            if len(lengths) != 1 or lengths == {0}:
                raise ValueError("outcome ok needs equally many blocks of base, twin and head")
        elif self.times_s or self.reason is None:
            raise ValueError(f"outcome {self.outcome} needs a reason and has no times")
        return self


class Job(BaseModel):
    """Measure one case in one round; the answer is a Record. `budget_s` is for sampling alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str = Field(min_length=1)
    case: Case
    round: int = Field(ge=0)
    budget_s: float = Field(gt=0)


class Question(BaseModel):
    """Say what this machine has, and whether these user factories load; the answer is a MachineInfo."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workloads: tuple[str, ...] = ()
    data: Data = Data.RANDOM


class CountJob(BaseModel):
    """Count one case; the answer is a CountRecord. `events` is the file that gets the simulated devices' recording."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case: Case
    events: str | None = None


class CountJobs(BaseModel):
    """Count them, each in a process of its own that lives for `timeout_s` at most; the answer are CountRecords.

    `tree` is the folder of a commit whose wrapper is counted, None the one of this dpbench.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    jobs: tuple[CountJob, ...] = Field(min_length=1)
    timeout_s: float = Field(gt=0)
    tree: str | None = None


class CountRecords(BaseModel):
    """One for each job, in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    records: tuple[CountRecord, ...]


class Side(BaseModel):
    """`tree` is the folder of a commit; `environment` are variables for the side's process alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str
    environment: dict[str, str] = Field(default_factory=dict)


class LockstepJob(BaseModel):
    """One benchmark in one round: `blocks` of about `block_s` seconds a side, pinned to `cores`.

    `checked`, every side's step is held against the oracle beforehand.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: str
    case: Case
    sides: dict[SideName, Side]
    cores: tuple[int, ...] = Field(min_length=1)
    blocks: int = Field(ge=1)
    block_s: float = Field(gt=0)
    timeout_s: float = Field(gt=0)
    seed: int
    checked: bool = True


class LockstepJobs(BaseModel):
    """One round; the benchmarks take their turns one after the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    jobs: tuple[LockstepJob, ...] = Field(min_length=1)


class LockstepRounds(BaseModel):
    """One for each job, in their order, and where they were taken."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: tuple[LockstepRound, ...]
    environment: Environment
