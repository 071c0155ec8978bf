"""Measure one case with the child of `dpbench compare`, or skip it."""

import re
from typing import NoReturn

from asv_runner.benchmarks.mark import SkipNotImplemented

from dpbench.cases.case import Case
from dpbench.engine.interpret import interpret
from dpbench.engine.messages import Job
from dpbench.jobs.round import run_alone
from dpbench.records.record import Outcome, Record

SAMPLING_S = 1.0
_TIMEOUT_S = 240.0
_LACKING = re.compile(
    r"ModuleNotFoundError: No module named 'dpbench\.parallel[.\w]*'.*"
    r"|ImportError: cannot import name '\w+' from 'dpbench\.parallel[.\w]*'.*"
    r"|TypeError: (Policy|DataParallel)\.__init__\(\) got an unexpected keyword argument '\w+'"
)


def measure(case: Case) -> Record:
    """One round. Raises SkipNotImplemented for a commit too old for the case, and RuntimeError if the case failed."""
    job = Job(run="asv", case=case, round=0, sampling_s=SAMPLING_S)
    record = interpret(run_alone(job, SAMPLING_S + _TIMEOUT_S), job)
    if record.outcome is not Outcome.OK:
        refuse(f"{record.outcome}: {record.reason}")
    return record


def refuse(reason: str) -> NoReturn:
    """Raise SkipNotImplemented if the commit's wrapper lacks a name or keyword that the harness uses, else
    RuntimeError.
    """
    if lacked := _LACKING.search(reason):
        skip(f"this commit lacks what the benchmark needs: {lacked[0]}")
    raise RuntimeError(reason)


def skip(reason: str) -> NoReturn:
    """With the line that asv prints for a skip in `setup`."""
    print(f"asv: skipped: {reason}")
    raise SkipNotImplemented(reason)
