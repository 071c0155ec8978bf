"""What the parent hands to the agent and to each worker of one run, as a file of JSON."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from dpbench.elastic.elastic_record import ElasticSettings, PlannedFault, RunScheme

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
