"""What the parent asks of a child: JSON on its stdin."""

from pydantic import BaseModel, ConfigDict, Field

from dpbench.sweep.case import Case
from dpbench.sweep.names import Data


class Job(BaseModel):
    """Measure one case in one round; the answer is a Record. `budget_s` is for sampling alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str = Field(min_length=1)
    case: Case
    round: int = Field(ge=0)
    budget_s: float = Field(gt=0)


class Question(BaseModel):
    """Say what this box has, and whether these user factories load; the answer is a Box."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workloads: tuple[str, ...] = ()
    data: Data = Data.RANDOM
