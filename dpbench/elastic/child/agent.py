"""torchrun's agent, in a process that dies with the parent. Two methods of torch get time stamps:

PContext.close                      the agent has noticed a failure, and ends the rest of its workers
LocalElasticAgent._start_workers    new worker processes
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpbench.elastic.elastic_record import EventKind
from dpbench.elastic.run_files import (
    AGENT_VARIABLE,
    HEARTBEAT_S,
    JOB_VARIABLE,
    LAST_CALL_S,
    MOST_LATE_HEARTBEATS,
    ElasticJob,
    EventLog,
)
from dpbench.engine.child import read_request
from dpbench.engine.start import child_command

_MONITOR_INTERVAL_S = 0.1
_SHUTDOWN_TIMEOUT_S = 5
"""torchrun's end sends its workers SIGTERM, and SIGKILL after this time.

Before a restart `LocalElasticAgent._stop_workers` waits 30 s instead (torch 2.13; torch 2.11 and older always do).
"""
_MEMBERSHIP = {
    "is_host": 0,  # the fleet holds the store
    "last_call_timeout": LAST_CALL_S,
    "keep_alive_interval": HEARTBEAT_S,
    "keep_alive_max_attempt": MOST_LATE_HEARTBEATS,
}


def run_agent(job: ElasticJob) -> None:
    """Raise what torchrun raises if the workers fail."""
    path = job.events / f"job-{job.agent}.json"
    path.write_text(job.model_dump_json())
    _set_environment(job, path)
    log = EventLog(job.events, agent=job.agent)
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing.api import PContext
    from torch.distributed.run import main as torchrun

    for owner, name, begin, end in (
        (PContext, "close", EventKind.STOP_BEGIN, EventKind.STOP_END),
        (LocalElasticAgent, "_start_workers", EventKind.START_BEGIN, EventKind.START_END),
    ):
        setattr(owner, name, _stamped(getattr(owner, name), log, begin, end))
    torchrun([*torchrun_options(job), *child_command("dpbench.elastic.child.trainer")])


def _set_environment(job: ElasticJob, path: Path) -> None:
    os.environ[JOB_VARIABLE] = str(path)
    os.environ[AGENT_VARIABLE] = f"{job.agent}:{os.getpid()}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Not by torchrun's option, which torch 2.11 does not have.
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(_SHUTDOWN_TIMEOUT_S)
    # Otherwise the agents share one store across restarts, where new workers read gloo addresses of dead ones.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # this machine's name may not resolve


def torchrun_options(job: ElasticJob) -> list[str]:
    settings = job.settings
    options: dict[str, Any] = {
        "--nproc-per-node": settings.ranks if job.endpoint is None else 1,
        "--max-restarts": settings.max_restarts,
        "--monitor-interval": _MONITOR_INTERVAL_S,
        "--log-dir": job.events,  # else a folder in /tmp, which torchrun leaves behind
        "--local-addr": "127.0.0.1",
    }
    if job.endpoint is not None:
        options |= {
            "--nnodes": f"{min(settings.worlds)}:{max(settings.worlds)}",
            "--rdzv-backend": "c10d",
            "--rdzv-endpoint": job.endpoint,
            "--rdzv-id": "dpbench",
            "--rdzv-conf": ",".join(f"{name}={value}" for name, value in _MEMBERSHIP.items()),
        }
    words = [word for name, value in options.items() for word in (name, str(value))]
    return [*words, *(["--standalone"] if job.endpoint is None else []), "--no-python"]


def _stamped(method: Callable[..., Any], log: EventLog, begin: EventKind, end: EventKind) -> Callable[..., Any]:
    @functools.wraps(method)
    def with_stamps(*args: Any, **kwargs: Any) -> Any:
        log.mark(begin)
        try:
            return method(*args, **kwargs)
        finally:
            log.mark(end)

    return with_stamps


if __name__ == "__main__":
    run_agent(ElasticJob.model_validate_json(read_request()[1]))
