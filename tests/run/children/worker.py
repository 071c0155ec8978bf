"""A worker that measures nothing.

If a file ``hang`` exists, the job of round 1 starts a rank and hangs.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from dpbench.run.messages import Job
from dpbench.run.process_tree import die_with_parent
from tests.fakes import ok_record

RANK = """
import os, sys, time
from dpbench.run.process_tree import die_with_parent
die_with_parent(int(sys.argv[1]))
open('hanging', 'w').close()
time.sleep(1000)
"""

record_fd, parent_pid = int(sys.argv[2]), int(sys.argv[4])
die_with_parent(parent_pid)
job = Job.model_validate_json(sys.stdin.read())
if job.round == 1 and Path("hang").exists():
    subprocess.Popen([sys.executable, "-c", RANK, str(os.getpid())], start_new_session=True)
    time.sleep(1000)
with os.fdopen(record_fd, "w") as pipe:
    pipe.write(ok_record(job).model_dump_json(by_alias=True))
