"""The files of one run: what the parent hands to the agent and to each worker, and their time stamps.

Each process appends stamps to a file of its own, and the parent merges them. A line is one write to an unbuffered file,
which the kernel has when `write` returns, so SIGKILL loses none. fsync, against a crash of the machine, would change
the step times.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.elastic.elastic_record import ElasticEvent, ElasticSettings, EventKind, PlannedFault, RunScheme

JOB_VARIABLE = "DPBENCH_ELASTIC_JOB"
AGENT_VARIABLE = "DPBENCH_ELASTIC_AGENT"
"""The agent's number and process id, as in ``0:4711``."""

ENVIRONMENT_FILE = "environment.json"
"""The file, in the folder of events, in which rank 0 of an undisturbed run writes the machine's Environment."""
LAST_CALL_S, HEARTBEAT_S, MOST_LATE_HEARTBEATS = 3, 1, 6
"""The rendezvous of agents that leave and join. torch's defaults are 30, 5 and 3; see child/fleet.py."""


class ElasticJob(BaseModel):
    """`faults`, and the folders `checkpoints` and `events`, are those of this run.

    If agents may leave and join, `nodes` is their most, `least_nodes` their least, and each has one worker. `is_host`
    is whether this agent holds the store of the rendezvous at `endpoint`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: RunScheme
    settings: ElasticSettings
    faults: tuple[PlannedFault, ...]
    checkpoints: Path
    events: Path
    nodes: int = 1
    least_nodes: int | None = None
    agent: int = 0
    is_host: bool = False
    endpoint: str | None = None
    local_address: str | None = None

    @property
    def ranks_per_node(self) -> int:
        return self.settings.ranks // self.nodes if self.least_nodes is None else 1


def read_job() -> ElasticJob:
    """The environment names the file."""
    return ElasticJob.model_validate_json(Path(os.environ[JOB_VARIABLE]).read_bytes())


def fault_file(events: Path, fault: PlannedFault) -> Path:
    """A worker makes it when the fault happens, so that it happens once."""
    return events / f"fault-{fault.step}"


class EventLog:
    def __init__(self, folder: Path, *, agent: int = 0, rank: int | None = None) -> None:
        self._agent, self._rank, self._pid = agent, rank, os.getpid()
        who = f"agent-{agent}" if rank is None else f"rank-{rank}"
        path = folder / f"{who}-{self._pid}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def mark(
        self,
        kind: EventKind,
        *,
        step: int | None = None,
        world: int | None = None,
        detail: str | None = None,
        loss: float | None = None,
        digest: str | None = None,
        at_ns: int | None = None,
    ) -> None:
        """`at_ns` is an earlier time of `time.monotonic_ns`."""
        event = ElasticEvent(
            at_ns=time.monotonic_ns() if at_ns is None else at_ns,
            kind=kind,
            pid=self._pid,
            agent=self._agent,
            rank=self._rank,
            world=world,
            step=step,
            detail=detail,
            loss=loss,
            digest=digest,
        )
        os.write(self._fd, event.model_dump_json(exclude_none=True).encode() + b"\n")


def read_events(folder: Path) -> tuple[ElasticEvent, ...]:
    """All files' events in the order of time, without torn last lines."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines(keepends=True))
    return merged(parsed(lines))


def parsed(lines: Iterable[bytes]) -> Iterable[ElasticEvent]:
    """The lines' events, without a torn line, as a process leaves that was killed within a write."""
    for line in lines:
        try:
            yield ElasticEvent.model_validate_json(line)
        except ValidationError:
            if line.endswith(b"\n"):
                raise


def merged(events: Iterable[ElasticEvent]) -> tuple[ElasticEvent, ...]:
    """The events in the order of time; those of one instant stay in the given order."""
    return tuple(sorted(events, key=lambda event: event.at_ns))
