"""What is asked of the child that takes two commits' steps in turns, and what it answers."""

from pydantic import BaseModel, ConfigDict, Field

from dpbench.results.lockstep import LockstepRound, SideName
from dpbench.results.record import Environment
from dpbench.sweep.case import Case


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
