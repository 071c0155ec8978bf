"""One point of the grid, measured by the same child as `dpbench compare` measures with."""

import re
from typing import NoReturn

from asv_runner.benchmarks.mark import SkipNotImplemented

from dpbench.results.record import Outcome, Record
from dpbench.run.interpret import interpret
from dpbench.run.launch import launch
from dpbench.run.messages import Job
from dpbench.run.runner import WORKER
from dpbench.sweep.case import Case

SAMPLING_S = 1.0
_TIMEOUT_S = 240.0
_LACKING = re.compile(
    r"ModuleNotFoundError: No module named 'dpbench\.parallel[.\w]*'.*"
    r"|ImportError: cannot import name '\w+' from 'dpbench\.parallel[.\w]*'.*"
    r"|TypeError: (Policy|DataParallel)\.__init__\(\) got an unexpected keyword argument '\w+'"
)


def measure(case: Case) -> Record:
    """A record of one round. Raises SkipNotImplemented where the commit lacks what it takes, else RuntimeError."""
    job = Job(run="asv", case=case, round=0, budget_s=SAMPLING_S)
    record = interpret(launch(WORKER, job.model_dump_json(), SAMPLING_S + _TIMEOUT_S), job)
    if record.outcome is not Outcome.OK:
        refuse(f"{record.outcome}: {record.reason}")
    return record


def refuse(reason: str) -> NoReturn:
    """Raise for what failed, its last words in `reason`: a skip where the commit is too old for the harness."""
    if found := _LACKING.search(reason):
        skip(f"this commit lacks what the benchmark needs: {found[0]}")
    raise RuntimeError(reason)


def skip(reason: str) -> NoReturn:
    """Leave out this combination of parameters while it runs, told as asv tells of those that `setup` leaves out."""
    print(f"asv: skipped: {reason}")
    raise SkipNotImplemented(reason)
