"""The child that lists benchmarks of asv and pytest: ListJobs on stdin, Listings on the record pipe.

parent ──launches──> this process: imports asv_runner or pytest, and no code of the project
                        ├──forks──> the benchmarks that a job means
                        └──forks──> one of them, called once, to see whether it can be borrowed
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from socket import socket

from dpbench.engine.child import answer
from dpbench.engine.interpret import Answer, answer_in
from dpbench.engine.launch import RECORD_BYTES
from dpbench.engine.messages import Listed, Listing, Listings, ListJob, ListJobs, SideName
from dpbench.engine.wrapper_of import scratch_of
from dpbench.jobs.borrowed import commit_imported, lend, preload
from dpbench.jobs.forks import SideError, failed, forked, sender
from dpbench.measure.borrowed.asv_conf import split_name
from dpbench.measure.borrowed.lent import Lent, Probe, SkippedError
from dpbench.measure.borrowed.one_call import refuse_processes
from dpbench.records.record import Outcome


def respond(request: ListJobs) -> Listings:
    preload({job.suite for job in request.jobs})
    return Listings(listings=tuple(_listing(job, request.timeout_s) for job in request.jobs))


def _listing(job: ListJob, timeout_s: float) -> Listing:
    try:
        listing = _in_fork(lambda: _found(job), Listing, job, timeout_s)
    except SideError as error:
        return Listing(problems=(error.reason,))
    return listing.model_copy(update={"meant": tuple(_tried(job, listed, timeout_s) for listed in listing.meant)})


def _tried(job: ListJob, listed: Listed, timeout_s: float) -> Listed:
    if listed.refused is not None:
        return listed
    own_s = sum(listed.timeouts_s)
    try:
        return _in_fork(lambda: _called(job, listed), Listed, job, own_s or timeout_s)
    except SideError as error:
        limits = " (its `timeout` and that of its `setup_cache`)" if error.outcome is Outcome.TIME_OUT and own_s else ""
        return listed.model_copy(update={"refused": f"{error.reason}{limits}"})


def _in_fork(work: Callable[[], Answer], kind: type[Answer], job: ListJob, timeout_s: float) -> Answer:
    with os.fdopen(os.memfd_create("answer"), "wb+", 0) as file:

        def serve(pipe: socket) -> None:
            send = sender(pipe)
            try:
                file.write(work().model_dump_json().encode())
            except BaseException as error:
                send(failed(Outcome.CRASHED, error))
            else:
                send({})

        with forked(
            SideName.BASE, serve, timeout_s, keep=[file.fileno()], folders=[scratch_of(Path(job.folder))]
        ) as fork:
            fork.receive(0)
        if (answer := answer_in(os.pread(file.fileno(), RECORD_BYTES, 0), kind)) is None:
            raise SideError(SideName.BASE, Outcome.CRASHED, "it changed the answer of its process")
        return answer


def _found(job: ListJob) -> Listing:
    folder = Path(job.folder)
    with commit_imported(folder, job.suite):
        if job.suite == "asv":
            from dpbench.measure.borrowed.asv_suite import find_asv, is_value, timeouts_s, why_not

            named, _ = split_name(job.text)
            benchmarks, problems, notes = find_asv(folder, named)
            all_listed = [
                Listed(
                    name=name,
                    version=benchmark.version,
                    is_value=is_value(benchmark),
                    refused=why_not(benchmark),
                    timeouts_s=timeouts_s(folder, benchmark, named),
                )
                for name, benchmark in benchmarks.items()
            ]
        else:
            from dpbench.measure.borrowed.pytest_suite import find_pytest

            where, colons, test = job.text.partition("::")
            job = job.model_copy(update={"text": f"{os.path.normpath(where)}{colons}{test}"})
            (reasons, problems), notes = find_pytest(folder, os.path.normpath(where)), []
            all_listed = [Listed(name=name, refused=reason) for name, reason in reasons.items()]
    meant = tuple(listed for listed in all_listed if is_meant(job, listed.name))
    names = tuple(listed.name for listed in all_listed)
    return Listing(meant=meant, all=names, problems=tuple(problems), notes=tuple(notes))


def is_meant(job: ListJob, name: str) -> bool:
    """By a regular expression as asv's ``--bench``, by a path, or a name."""
    if job.pattern and job.suite == "asv":
        named, text = split_name(job.text)
        return re.search(text, name.removeprefix(f"{named}:")) is not None
    if job.pattern and ("::" not in job.text or name.startswith(f"{job.text}::")):
        return True  # only this path was collected
    return job.text in (name, name.partition("(" if job.suite == "asv" else "[")[0])


def _called(job: ListJob, listed: Listed) -> Listed:
    folder, probe, firsts = Path(job.folder), Probe(), list[bool]()

    def use(take: Lent, first: bool) -> None:
        firsts.append(first)
        refuse_processes(take, probe)

    with commit_imported(folder, job.suite):
        try:
            lend(f"{job.suite} {listed.name}", folder, use, probe)
        except SkippedError as error:
            return listed.model_copy(update={"refused": str(error), "is_skipped": True})
    return listed.model_copy(update={"is_first_call": any(firsts)})


if __name__ == "__main__":
    answer(respond)
