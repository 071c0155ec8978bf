"""A worker that measures nothing. It imports little, so it starts fast.

In odd rounds it starts a stand-in for a rank, which sleeps in a session of its own, and sends its record after 0.2 s.
"""

import json
import os
import subprocess
import sys
import time

from dpbench.run.process_tree import die_with_parent

RECORD_FD, PARENT_PID = int(sys.argv[2]), int(sys.argv[4])
RANK = """
import sys, time
from dpbench.run.process_tree import die_with_parent
die_with_parent(int(sys.argv[1]))
time.sleep(60)
"""

die_with_parent(PARENT_PID)
job = json.load(sys.stdin)
if job["round"] % 2:
    subprocess.Popen([sys.executable, "-c", RANK, str(os.getpid())], start_new_session=True)
    time.sleep(0.2)
with os.fdopen(RECORD_FD, "w") as pipe:
    json.dump(
        {
            "schema": 2,
            "run": job["run"],
            "case": job["case"],
            "round": job["round"],
            "started_at": "2026-01-01T00:00:00.000+00:00",
            "outcome": "ok",
            "samples_s": [0.1] * 50,
            "metrics": {"threads_per_lane": 1, "warmup_steps": 1, "stopped_by": "budget"},
            "environment": {
                "hostname": "storm",
                "os": "Linux",
                "python": "3.11.7",
                "torch": "2",
                "cpu_model": "a CPU",
                "cores": 1,
                "dpbench": "0",
            },
        },
        pipe,
    )
