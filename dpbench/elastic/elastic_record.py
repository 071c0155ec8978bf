"""Records of `dpbench elastic`: a line of JSON is one training run, with the raw time stamps of its processes."""

from enum import StrEnum
from itertools import accumulate
from typing import Literal, Self

from pydantic import model_validator

from dpbench.records.record import Environment, Outcome
from dpbench.records.row import Row
from dpbench.text.validated import Count, Frozen, Items, Moment, Positive


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


class PlannedFault(Frozen):
    """The worker of `rank`, in the world at that time, fails before it begins `step`. The rank of a JOIN is 0."""

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


class ElasticSettings(Frozen):
    """`ranks` is the command's --nproc-per-node, `backend` its --checkpoint-format."""

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


class ElasticEvent(Frozen):
    """`at_ns` is CLOCK_MONOTONIC, which all processes of a machine share.

    `rank` is None for a torchrun agent. `step` is the step that ended (STEP) or did not begin (FAULT), or the number of
    steps in a checkpoint. `loss` and `digest`, the SHA-256 of the parameters, come with DONE.
    """

    at_ns: Count
    kind: EventKind
    pid: Count
    agent: Count = 0
    rank: Count | None = None
    step: Count | None = None
    detail: str | None = None
    loss: float | None = None
    digest: str | None = None


class ElasticRecord(Row):
    """`events` are in the order of time. Only outcome ok needs no reason."""

    kind: Literal["elastic run"] = "elastic run"
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
