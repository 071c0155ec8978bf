"""The process of a round whose children measure nothing.

If a file ``hang`` exists, a child of round 1 starts a rank and hangs.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from dpbench.engine.process_tree import die_with_parent
from dpbench.jobs.round_child import serve
from tests.fakes import ok_record

RANK = """
import os, sys, time
from dpbench.engine.process_tree import die_with_parent
die_with_parent(int(sys.argv[1]))
open('hanging', 'w').close()
time.sleep(1000)
"""


def measured(job, _):
    if job.round == 1 and Path("hang").exists():
        subprocess.Popen([sys.executable, "-c", RANK, str(os.getpid())], start_new_session=True)
        time.sleep(1000)
    return ok_record(job)


die_with_parent(int(sys.argv[4]))
serve(measured, int(sys.argv[2]))
