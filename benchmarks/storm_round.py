"""The process of a round whose children measure nothing. It imports little, so it starts fast.

In odd rounds a child starts a stand-in for a rank, which sleeps in a session of its own, and ends after 0.2 s.
"""

import os
import subprocess
import sys
import time

from dpbench.engine.messages import Job
from dpbench.engine.process_tree import die_with_parent
from dpbench.jobs.ranks import Rendezvous
from dpbench.jobs.round_child import serve
from dpbench.records.record import Environment, Metrics, Outcome, Record

REQUESTS_FD, PARENT_PID = int(sys.argv[2]), int(sys.argv[4])
RANK = """
import sys, time
from dpbench.engine.process_tree import die_with_parent
die_with_parent(int(sys.argv[1]))
time.sleep(60)
"""
ENVIRONMENT = Environment(
    hostname="storm", os="Linux", python="3.11.7", torch="2", cpu_model="a CPU", cores=1, dpbench="0"
)


def measured(job: Job, _: Rendezvous | None) -> Record:
    if job.round % 2:
        subprocess.Popen([sys.executable, "-c", RANK, str(os.getpid())], start_new_session=True)
        time.sleep(0.2)
    return Record(
        run=job.run,
        case=job.case,
        round=job.round,
        started_at="2026-01-01T00:00:00.000+00:00",
        outcome=Outcome.OK,
        samples_s=(0.1,) * 50,
        metrics=Metrics(threads_per_lane=1, warmup_steps=1, stopped_by="budget"),
        environment=ENVIRONMENT,
    )


die_with_parent(PARENT_PID)
serve(measured, REQUESTS_FD)
