"""The child that has others count, as many at a time as there are cores: CountJobs on stdin, CountRecords on a pipe.

    python -m dpbench.run.count_pool --record-fd N --parent-pid P

The parent launches one child at a time; this one is between it and those that count, and imports no torch itself.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pydantic import ValidationError

from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.run.count_job import CountJob, CountJobs, CountRecords
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import Exit
from dpbench.run.lifeline import die_with_parent
from dpbench.sweep.machine import usable_cores

COUNTER = [sys.executable, "-X", "faulthandler", "-m", "dpbench.run.count"]

# Equal in every process: the order of sets of strings, the threads, and no GPU, which would take the simulator's place.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    asked = CountJobs.model_validate_json(sys.stdin.read())
    with ThreadPoolExecutor(usable_cores()) as pool:
        records = CountRecords(records=tuple(pool.map(partial(_count, timeout_s=asked.timeout_s), asked.jobs)))
    with os.fdopen(options.record_fd, "w") as pipe:
        pipe.write(records.model_dump_json())


def _count(job: CountJob, timeout_s: float) -> CountRecord:
    """Start a child and wait for it; it dies with this thread, and so with this process."""
    with os.fdopen(os.memfd_create("record"), "rb") as record:
        command = [*COUNTER, "--record-fd", str(record.fileno()), "--parent-pid", str(os.getpid())]
        try:
            done = subprocess.run(
                command,
                check=False,
                input=job.model_dump_json().encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[record.fileno()],
                env={**os.environ, **_ENVIRONMENT},
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return CountRecord(case=job.case, outcome=Outcome.TIME_OUT, reason=f"not done after {timeout_s:g} s")
        record.seek(0)
        try:
            return CountRecord.model_validate_json(record.read())
        except ValidationError:
            end = ending(Exit(started_at="", duration_s=0.0, returncode=done.returncode))
            reason = "\n".join([end, *last_lines(done.stdout)])
            return CountRecord(case=job.case, outcome=Outcome.CRASHED, reason=reason)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.count_pool", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
