"""Records of `dpbench elastic`: a line of JSON is one training run, with the raw time stamps of its processes."""

from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from dpbench.records.record import Environment, Outcome, RecordLineError, why_other_schema
from dpbench.records.store import StoreError
from dpbench.text.files import append_once, reason_of
from dpbench.text.outside import one_line, open_input
from dpbench.text.validated import Count, Items, Moment, Positive, what_is_wrong

ELASTIC_SCHEMA = 3


class FaultKind(StrEnum):
    KILL = "kill"
    OOM = "oom"
    """An allocation above the worker's RLIMIT_AS."""
    HANG = "hang"
    """The worker's peers time out in a collective."""
    LEAVE = "leave"
    """The rank's agent gets SIGTERM."""
    JOIN = "join"
    """A new agent asks to take part; rank 0 waits until its own agent has noticed."""


WORLD_CHANGES = {FaultKind.LEAVE: -1, FaultKind.JOIN: 1}


class PlannedFault(BaseModel):
    """The worker of `rank`, in the world at that time, fails before it begins `step`. The rank of a JOIN is 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind
    step: Count
    rank: Count

    def __str__(self) -> str:
        return f"{self.kind}@{self.step}" + ("" if self.kind is FaultKind.JOIN else f":{self.rank}")


class CheckpointFormat(StrEnum):
    TORCH_SAVE = "torch.save"
    """Rank 0 writes one file."""
    DCP = "dcp"
    """torch.distributed.checkpoint: all ranks write into a folder."""


class RunScheme(StrEnum):
    UNDISTURBED = "undisturbed"
    ELASTIC = "elastic"


class ElasticSettings(BaseModel):
    """`ranks` is the command's --nproc-per-node, `backend` its --checkpoint-format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    ranks: Items
    steps: Items
    batch: Items
    dtype: str
    checkpoint_every: Items
    backend: CheckpointFormat
    max_restarts: Count
    hang_timeout_s: Positive
    seed: Count
    plan: tuple[PlannedFault, ...] = ()

    @property
    def worlds(self) -> tuple[int, ...]:
        """The ranks at the start, and after each fault of the plan."""
        changes = (WORLD_CHANGES.get(fault.kind, 0) for fault in self.plan)
        return tuple(accumulate(changes, initial=self.ranks))

    @property
    def is_world_changed(self) -> bool:
        return any(fault.kind in WORLD_CHANGES for fault in self.plan)


class EventKind(StrEnum):
    STOP_BEGIN = "stop_begin"
    STOP_END = "stop_end"
    START_BEGIN = "start_begin"
    START_END = "start_end"
    READY = "ready"
    RESTORE_END = "restore_end"
    STEP = "step"
    CHECKPOINT_END = "checkpoint_end"
    FAULT = "fault"
    DONE = "done"


class ElasticEvent(BaseModel):
    """`at_ns` is CLOCK_MONOTONIC, which all processes of a machine share.

    `rank` is None for a torchrun agent. `step` is the step that ended (STEP) or did not begin (FAULT), or the number of
    steps in a checkpoint. `loss` and `digest`, the SHA-256 of the parameters, come with DONE.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_ns: Count
    kind: EventKind
    pid: Count
    agent: Count = 0
    rank: Count | None = None
    step: Count | None = None
    detail: str | None = None
    loss: float | None = None
    digest: str | None = None


class ElasticRecord(BaseModel):
    """`events` are in the order of time. Only outcome ok needs no reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: int = Field(default=ELASTIC_SCHEMA, alias="schema")
    run: str
    scheme: RunScheme
    settings: ElasticSettings
    started_at: Moment
    duration_s: Positive
    outcome: Outcome
    reason: str | None = None
    environment: Environment | None = None
    events: tuple[ElasticEvent, ...] = ()

    @model_validator(mode="after")
    def _failures_have_reasons(self) -> Self:
        if self.outcome is not Outcome.OK and self.reason is None:
            raise ValueError(f"outcome {self.outcome} needs a reason")
        if self.outcome is Outcome.OK and self.done is None:
            raise ValueError("outcome ok needs the event done")
        return self

    @property
    def done(self) -> ElasticEvent | None:
        """Rank 0's event, or None if the run did not end."""
        ends = [event for event in self.events if event.kind is EventKind.DONE and event.rank == 0]
        return ends[-1] if ends else None


def to_elastic_line(record: ElasticRecord) -> bytes:
    return record.model_dump_json(by_alias=True).encode() + b"\n"


def parse_elastic_line(line: bytes) -> ElasticRecord:
    """Raise RecordLineError."""
    try:
        fields = from_json(line)
    except ValueError as error:
        raise RecordLineError(one_line(f"is not JSON: {error}")) from error
    if problem := why_other_schema(fields, ELASTIC_SCHEMA):
        raise RecordLineError(problem)
    try:
        return ElasticRecord.model_validate_json(line)
    except ValidationError as error:
        raise RecordLineError(f"is no record of an elastic run: {what_is_wrong(error)}") from error


def append_elastic(path: Path, record: ElasticRecord) -> None:
    """Raise StoreError."""
    try:
        append_once(path, to_elastic_line(record), "a record")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}") from error


def read_elastic(path: Path) -> tuple[list[ElasticRecord], list[str]]:
    """The records, and a warning for each line that is none, such as a torn last one. Raise StoreError."""
    records: list[ElasticRecord] = []
    warnings: list[str] = []
    try:
        with open_input(path) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    records.append(parse_elastic_line(line))
                except RecordLineError as error:
                    warnings.append(f"{path}: line {number} {error}; it was left out")
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    return records, warnings
