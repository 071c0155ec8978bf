"""Several torchrun agents on this machine, with one worker each, so that ranks can leave and join.

    fleet: imports torchrun once, forks every agent, holds the store of the rendezvous
      ├─ agent 0 ══> worker          `leave`: the worker sends its agent SIGTERM
      ├─ agent 1 ══> worker
      └─ agent 2 waits until a worker touches fault-STEP, then asks to take part        `join`

What torchelastic does with ``--nnodes MIN:MAX`` (torch 2.13, elastic/rendezvous/dynamic_rendezvous.py and
elastic/agent/server/api.py):

- An agent that dies with the rendezvous' store ends the run. So the fleet holds it.
- A round ends when MAX agents are there, or `last_call_timeout` (30 s) after MIN were there (`_RendezvousJoinOp`).
- An agent joins a later round. It enters the wait list until the last participant has left the present round.
- The others notice the wait list at their next look (`_invoke_run`) and restart their workers. This costs none of
  `max_restarts`. But the first agent that stops its worker breaks the collective, so a worker of another agent may fail
  before its agent has looked. Then that agent loses a restart.
- An agent that ends by SIGTERM stays a participant (`SimpleElasticAgent.run`). The others wait until its heartbeats
  are too old: `keep_alive_interval` (5 s) x `keep_alive_max_attempt` (3).
- Ranks follow the agents' addresses and process ids (`_mark_rendezvous_complete`), so a rank is another agent's after
  a change.

So with torch's defaults a leave costs up to 15 s, and 30 s more unless MAX agents remain. `run_files.py` has less. A
last call that is shorter than the stopping of workers would close the round too early, and every agent would restart
again.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dpbench.elastic.child.agent import run_agent
from dpbench.elastic.elastic_record import FaultKind
from dpbench.elastic.run_files import ElasticJob, fault_file
from dpbench.engine.child import loading, read_request
from dpbench.engine.fork import fork

_HOST = "127.0.0.1"
_LOOK_EVERY_S = 0.02


def main() -> None:
    job = ElasticJob.model_validate_json(read_request()[1])
    with socket.create_server((_HOST, 0)) as listener:
        with loading():
            import torch.distributed.run  # noqa: F401  # once, for all agents
            from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, and not in __all__
        port = listener.getsockname()[1]
        common = job.model_copy(update={"endpoint": f"{_HOST}:{port}"})
        agents = {
            fork(partial(_live, common.model_copy(update={"agent": n}), asks_when)) for n, asks_when in _agents(job)
        }
        # After the forks: the store has threads, which a fork would not copy.
        store = TCPStore(_HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    _wait_for(agents)
    del store


def _agents(job: ElasticJob) -> Iterator[tuple[int, Path | None]]:
    """Each agent's number, and the file whose appearance lets it ask to take part; None for the first ones."""
    yield from ((number, None) for number in range(job.settings.ranks))
    joins = [fault for fault in job.faults if fault.kind is FaultKind.JOIN]
    yield from ((job.settings.ranks + n, fault_file(job.events, fault)) for n, fault in enumerate(joins))


def _live(job: ElasticJob, asks_when: Path | None) -> None:
    while asks_when is not None and not asks_when.exists():
        time.sleep(_LOOK_EVERY_S)
    from torch.distributed.elastic.multiprocessing.api import SignalException

    try:
        run_agent(job)
    except SignalException as error:
        if error.sigval is not signal.SIGTERM:
            raise


def _wait_for(agents: set[int]) -> None:
    while agents:
        pid, status = os.wait()
        agents.discard(pid)
        if status != 0:
            sys.exit(1)


if __name__ == "__main__":
    main()
