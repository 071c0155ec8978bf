"""What one child measured. A failed run has no numbers.

SCHEMA history
    1  first.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dpbench.sweep.case import Case

SCHEMA = 1


class Outcome(StrEnum):
    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_OUT = "time_out"
    CRASHED = "crashed"
    WRONG_RESULT = "wrong_result"
    SKIPPED = "skipped"


class Environment(BaseModel):
    """What must be equal before two records are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hostname: str
    os: str
    python: str
    torch: str
    cpu_model: str
    cores: int
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    dpbench: str
    commit: str | None = None
    dirty: bool | None = None


class Metrics(BaseModel):
    """Facts beside the samples. None where a fact does not apply to the case.

    `threads_per_lane` are intra-op threads; `stopped_by` is ``interval`` or ``budget``;
    `skew_s` is, per sample, the slowest rank's time less the fastest's (None for one process);
    `relative_error` is how far gradients (`infer`: outputs) are from those of the plain module run chunk by chunk.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads_per_lane: int
    warmup_steps: int
    stopped_by: str
    skew_s: tuple[float, ...] | None = None
    relative_error: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    peak_rss_bytes: int | None = None
    peak_device_bytes: dict[str, int] | None = None


class Record(BaseModel):
    """One case in one round. `samples_s` holds every timed step in order, in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: int = Field(default=SCHEMA, alias="schema")
    run: str
    case: Case
    round: int = Field(ge=0)
    started_at: str
    outcome: Outcome
    reason: str | None = None
    samples_s: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = ()
    environment: Environment | None = None
    metrics: Metrics | None = None

    @model_validator(mode="after")
    def _only_ok_has_numbers(self) -> Self:
        if self.outcome is Outcome.OK and not (self.samples_s and self.metrics and self.environment):
            raise ValueError("outcome ok needs samples_s, metrics and environment")
        if self.outcome is not Outcome.OK and (self.samples_s or self.reason is None):
            raise ValueError(f"outcome {self.outcome} needs a reason and has no samples_s")
        return self

    @property
    def key(self) -> tuple[str, int]:
        """Unique within one run."""
        return (self.case.id, self.round)

    def to_json(self) -> dict[str, Any]:
        data = self.model_dump(mode="json", by_alias=True)
        data["case"]["id"] = self.case.id
        return data
