"""What a script's ranks send each other, and the requests that count it."""

from enum import StrEnum

from pydantic import Field

from dpbench.records.count_record import Place
from dpbench.text.validated import Frozen

WARM_UP = 2
LEAST_STEPS = WARM_UP + 1
MOST_STEPS = 1000
USUAL_STEPS = 25
MOST_RANKS = 8


class Part(StrEnum):
    """FORWARD begins with the first forward of a module after the last step, and BACKWARD is each call of autograd.

    OTHER comes before the forward. OPTIMIZER lasts until an optimizer has stepped, which ends the step.
    """

    SETUP = "setup"
    OTHER = "other"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Issue(Frozen):
    """Equal collectives of one line in one part of a step, with their number.

    `size_bytes` is one's payload: the tensor that is reduced, or all that is gathered or scattered. That of `gather`,
    `scatter`, `send` and `recv` is the part of one rank. `is_unaligned`: a tensor's size is no multiple of 16 bytes.
    `is_exposed`: the rank waits for the result without an operator to compute. Neither is true of the set-up.
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
        size = f"{self.size_bytes:,} bytes of {self.dtypes}" if self.dtypes else "no payload"
        return ", ".join([size, *["unaligned"] * self.is_unaligned, *["exposed"] * self.is_exposed])


Issues = tuple[Issue, ...]


class RankIssues(Frozen):
    """Issues before the first step, and in each step."""

    setup: Issues = ()
    steps: tuple[Issues, ...] = ()


class ScriptJob(Frozen):
    """Its path is in `folder`, None for the current one. A rank ends after `steps` steps of its optimizers, or with the
    script.
    """

    script: str
    args: tuple[str, ...] = ()
    ranks: int = Field(2, ge=2, le=MOST_RANKS, description=f"2 to {MOST_RANKS}")
    steps: int = Field(USUAL_STEPS, ge=LEAST_STEPS, le=MOST_STEPS, description=f"{LEAST_STEPS} to {MOST_STEPS}")
    folder: str | None = None


class ScriptJobs(Frozen):
    """Each job has `timeout_s`."""

    jobs: tuple[ScriptJob, ...] = Field(min_length=1)
    timeout_s: float = Field(gt=0)


class ScriptRecord(Frozen):
    """`reason` says why the ranks' issues are not known."""

    ranks: tuple[RankIssues, ...] = ()
    reason: str | None = None


class ScriptRecords(Frozen):
    records: tuple[ScriptRecord, ...]
