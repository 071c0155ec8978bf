"""Fake children: every request that the parent sends is answered at once, without a process.

Jobs go through `RoundProcesses.launch`, which is replaced. Other requests go through
`dpbench.engine.launch.launch`. Its two parts that start and await a process are replaced, so the rest, such as
reading the pipes, is real.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from dpbench.cases.machine_info import MachineInfo
from dpbench.doctor.findings import Findings, ok
from dpbench.engine import launch
from dpbench.engine.launch import Exit
from dpbench.engine.messages import CountJobs, CountRecords, Job, ProbeRequest
from dpbench.jobs.round import RoundProcesses
from dpbench.records import expected
from dpbench.records.count_record import CountRecord, Counts, Phase, PhaseCounts
from dpbench.records.record import Outcome
from tests.fakes import ended, ok_record
from tests.records.making import ENVIRONMENT


def machine(workload_errors: dict[str, str | None] | None = None) -> MachineInfo:
    """Return a machine with two cores and no GPU."""
    return MachineInfo(
        python="3.11.9",
        torch="2.13.0",
        cpu_model="a CPU",
        cores=2,
        memory_bytes=1 << 30,
        backends=("gloo",),
        workload_errors=workload_errors or {},
    )


def probe(text: str) -> str:
    return machine(dict.fromkeys(ProbeRequest.model_validate_json(text).workloads)).model_dump_json()


def count(text: str) -> str:
    jobs = CountJobs.model_validate_json(text).jobs
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(operators=1)})
    records = [CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT) for job in jobs]
    return CountRecords(records=tuple(records)).model_dump_json()


def examine(_: str) -> str:
    return Findings(findings=(ok("a fake", "examined nothing"),)).model_dump_json()


CHILDREN: dict[str, Callable[[str], str]] = {
    "dpbench.jobs.probe_child": probe,
    "dpbench.jobs.count_child": count,
    "dpbench.doctor.child.examine": examine,
}
"""By module, the child's response to the text on its stdin. A child that is not here ends without a response."""


@contextmanager
def answering(children: dict[str, Callable[[str], str]] = CHILDREN) -> Iterator[None]:
    """Let the fakes answer inside the block."""

    def start(command: list[str], stdin_text: str, mark: str, record_fd: int, output_fd: int) -> Any:
        answer = next((fake for module, fake in children.items() if module in command), lambda _: "")(stdin_text)
        os.set_blocking(record_fd, False)
        fcntl.fcntl(record_fd, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.write(record_fd, answer.encode())  # all of it fits into the pipe
        return [SimpleNamespace(pid=os.getpid(), kill=lambda: None, wait=lambda *_: 0)]

    def measure(_: RoundProcesses, job: Job, *_other: Any) -> Exit:
        return ended(0, ok_record(job))

    with ExitStack() as stack:
        stack.enter_context(patch.object(launch, "_start", start))
        stack.enter_context(patch.object(launch, "_watch", lambda *_: (None, None)))
        stack.enter_context(patch.object(launch, "watcher", lambda _scratch: nullcontext("")))
        of_environment = ("2.13.0", "3.11")
        stack.enter_context(patch.object(expected, "installed_versions", lambda: of_environment))
        stack.enter_context(patch.object(RoundProcesses, "launch", measure))
        yield
