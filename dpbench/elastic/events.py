"""Files of time stamps: each process appends to a file of its own, and the parent merges them.

A line is one write to an unbuffered file, which the kernel has when `write` returns, so SIGKILL loses none. fsync,
against a crash of the machine, would change the step times.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from dpbench.elastic.elastic_record import ElasticEvent, EventKind


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
