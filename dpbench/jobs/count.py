"""Count cases, or what the ranks of scripts send each other, in a child process."""

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from dpbench.cases.case import Case
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import CountJob, CountJobs, CountRecords
from dpbench.engine.task import Task
from dpbench.errors import WrongInputError
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome
from dpbench.records.script_record import ScriptJob, ScriptJobs, ScriptRecord, ScriptRecords
from dpbench.text.outputs import check_output

# Counts must be equal in every process. So sets of strings have one order, there is one thread, and no GPU is visible:
# a GPU would take the place of the simulator.
_ENVIRONMENT = "PYTHONHASHSEED=0", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="
COUNTER = Task("dpbench.jobs.count_child", CountRecords, _ENVIRONMENT)
SCRIPT_COUNTER = Task("dpbench.jobs.scripts_child", ScriptRecords, _ENVIRONMENT)
_IMPORT_S = 60.0
LIMIT_S = 120.0
"""For each case, script or benchmark, unless a suite's own limit is longer."""


def count_all(
    cases: Sequence[Case],
    *,
    events: Path | None = None,
    folder: Path | None = None,
    launch: Launcher = launch,
    timeout_s: float = LIMIT_S,
) -> tuple[CountRecord, ...]:
    """One record for each case, in order; raises ChildError if the child fails as a whole.

    The recording of a single case is written to `events`. `folder` is that of the commit whose wrapper is counted.
    """
    if not cases:
        return ()
    if events is not None:
        assert len(cases) == 1
        check_output("events", events)
    target = os.path.realpath(events) if events else None
    jobs = [CountJob(case=case, events=target, folder=str(folder) if folder else None) for case in cases]
    return run_jobs(jobs, launch=launch, timeout_s=timeout_s)


def run_jobs(
    jobs: Sequence[CountJob], *, launch: Launcher = launch, timeout_s: float = LIMIT_S
) -> tuple[CountRecord, ...]:
    """One record for each job, in order; raises ChildError if the child fails as a whole."""
    request = CountJobs(jobs=tuple(jobs), timeout_s=timeout_s)
    attempts = sum(1 if job.numbers else 2 for job in jobs)
    answer = COUNTER.run(request, timeout_s * (attempts + 1), launch).answered("counting failed")
    _note(answer.note)
    return answer.records


@cache
def _note(line: str | None) -> None:
    """Say it once in a process, however often it counts."""
    if line is not None:
        sys.stderr.write(f"dpbench: {line}\n")


def count_scripts(
    jobs: Sequence[ScriptJob], *, launch: Launcher = launch, timeout_s: float = LIMIT_S
) -> tuple[ScriptRecord, ...]:
    """As `run_jobs`."""
    request = ScriptJobs(jobs=tuple(jobs), timeout_s=timeout_s)
    return SCRIPT_COUNTER.run(request, timeout_s * len(jobs) + _IMPORT_S, launch).answered("counting failed").records


def countable(records: tuple[CountRecord, ...]) -> tuple[CountRecord, ...]:
    """Raises WrongInputError for the first case that was skipped."""
    for record in records:
        if record.outcome is Outcome.SKIPPED:
            raise WrongInputError(record.reason)
    return records
