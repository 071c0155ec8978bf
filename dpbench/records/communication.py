"""What a script's ranks send each other, and the requests that count it. Pure."""

from enum import StrEnum

from pydantic import Field

from dpbench.records.counts import Place
from dpbench.text.frozen import Frozen

WARM_UP = 2
LEAST_STEPS, MOST_STEPS, USUAL_STEPS = WARM_UP + 1, 1000, 25
MOST_RANKS = 8


class Part(StrEnum):
    """The parts of a script's step.

    FORWARD begins with the first forward of a module after the last step, and BACKWARD is each call of autograd. Then
    OPTIMIZER lasts until an optimizer has stepped, which ends the step. OTHER is what comes before the forward.
    """

    SETUP = "setup"
    OTHER = "other"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Issue(Frozen):
    """Equal collectives of one line in one part of a step, and how many there are.

    `size_bytes` is the payload of one: the tensor that is reduced, or all that is gathered or scattered. The payload of
    `gather`, `scatter`, `send` and `recv` is the part of one rank. `is_unaligned` is whether a tensor of it has a
    size that is no multiple of 16 bytes. `is_exposed` is whether the rank waits for the result while it has no operator
    to compute.
    """

    part: Part
    kind: str
    size_bytes: int = Field(ge=0)
    dtypes: str
    is_unaligned: bool
    is_exposed: bool
    place: Place
    count: int = Field(ge=1)

    @property
    def what(self) -> str:
        """``64 bytes of float32, exposed``."""
        size = f"{self.size_bytes:,} bytes of {self.dtypes}" if self.dtypes else "no payload"
        return ", ".join([size, *["unaligned"] * self.is_unaligned, *["exposed"] * self.is_exposed])


Issues = tuple[Issue, ...]


class RankIssues(Frozen):
    """What one rank issued: before the first step, in each step, and after the last one."""

    setup: Issues = ()
    steps: tuple[Issues, ...] = ()
    after: Issues = ()


class ScriptJob(Frozen):
    """A script to count: its path in `folder`, which is the current folder if it is None.

    A rank ends after `steps` steps of its optimizers, or with the script.
    """

    script: str
    args: tuple[str, ...] = ()
    ranks: int = Field(2, ge=2, le=MOST_RANKS, description=f"2 to {MOST_RANKS}")
    steps: int = Field(USUAL_STEPS, ge=LEAST_STEPS, le=MOST_STEPS, description=f"{LEAST_STEPS} to {MOST_STEPS}")
    folder: str | None = None


class ScriptJobs(Frozen):
    """Request to count scripts, one after the other. Each has `timeout_s`."""

    jobs: tuple[ScriptJob, ...] = Field(min_length=1)
    timeout_s: float = Field(gt=0)


class ScriptRecord(Frozen):
    """What each rank of a script issued, or the `reason` why that is not known."""

    ranks: tuple[RankIssues, ...] = ()
    reason: str | None = None


class ScriptRecords(Frozen):
    """Response to `ScriptJobs`: one record for each job, in their order."""

    records: tuple[ScriptRecord, ...]
