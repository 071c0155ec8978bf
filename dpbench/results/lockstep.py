"""What two commits' step times side by side look like: rounds of blocks, taken in turns."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dpbench.results.record import Outcome

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
