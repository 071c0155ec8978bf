"""What is asked of the child that counts, and what it answers: JSON on its stdin and on its record pipe."""

from pydantic import BaseModel, ConfigDict, Field

from dpbench.results.counts import CountRecord
from dpbench.sweep.case import Case


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
