"""What the parent of a run hands to the agent and to each worker, and their time stamps.

Each process appends stamps to a file of its own. A line is one write to an unbuffered file, which the kernel has when
`write` returns, so SIGKILL loses none. fsync, against a crash of the machine, would change the step times.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpbench.elastic.elastic_record import ElasticEvent, ElasticSettings, EventKind, PlannedFault, RunScheme
from dpbench.text.validated import Frozen

JOB_VARIABLE = "DPBENCH_ELASTIC_JOB"
AGENT_VARIABLE = "DPBENCH_ELASTIC_AGENT"
"""The agent's number and process id, as in ``0:4711``."""

ENVIRONMENT_FILE = "environment.json"
"""The Environment, in the folder of events, by rank 0 of an undisturbed run."""
LAST_CALL_S = 3
HEARTBEAT_S = 1
MOST_LATE_HEARTBEATS = 6
"""The rendezvous of agents that leave and join. torch's defaults are 30, 5 and 3; see child/fleet.py."""


class ElasticJob(Frozen):
    """The folders `checkpoints` and `events` are of this run alone.

    `endpoint` is the host and port at which several agents meet.
    """

    scheme: RunScheme
    settings: ElasticSettings
    checkpoints: Path
    events: Path
    agent: int = 0
    endpoint: str | None = None

    @property
    def faults(self) -> tuple[PlannedFault, ...]:
        return self.settings.plan if self.scheme is RunScheme.ELASTIC else ()

    @property
    def has_fleet(self) -> bool:
        """Whether ranks leave or join, so each has an agent of its own."""
        return self.scheme is RunScheme.ELASTIC and self.settings.is_world_changed


def read_job() -> ElasticJob:
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

    def mark(self, kind: EventKind, **facts: Any) -> None:
        """Now, with further fields of `ElasticEvent`."""
        place = {"pid": self._pid, "agent": self._agent, "rank": self._rank}
        event = ElasticEvent(at_ns=time.monotonic_ns(), kind=kind, **place, **facts)
        os.write(self._fd, event.model_dump_json(exclude_none=True).encode() + b"\n")


def read_events(folder: Path) -> tuple[ElasticEvent, ...]:
    """All files' events, without the torn line of a process that was killed within a write."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines(keepends=True))
    return in_time(ElasticEvent.model_validate_json(line) for line in lines if line.endswith(b"\n"))


def in_time(events: Iterable[ElasticEvent]) -> tuple[ElasticEvent, ...]:
    return tuple(sorted(events, key=lambda event: event.at_ns))
