"""The process of a round: it imports torch, and forks a child for each case.

    python -m dpbench.jobs.round_child --requests-fd N --parent-pid P

It runs no operator, asks for no device and imports nothing of the user's: a question for devices can forbid CUDA in
forks. Each child has its own POSIX session, output and time limit::

    parent <──> this process ──forks──> child: worker.py          its record goes to a pipe, then this process
                             ──forks──> rank 1 ... rank n-1       sends it to the parent
"""

import argparse
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection

import psutil

from dpbench.engine.child import leave, loading, send, shifted_heap
from dpbench.engine.fork import fork
from dpbench.engine.launch import Exit, Process, supervise
from dpbench.engine.messages import Job, RoundRequest
from dpbench.engine.process_tree import die_with_parent
from dpbench.jobs.ranks import LOOPBACK, Rendezvous
from dpbench.jobs.round import STOP, send_exit
from dpbench.records.record import Outcome, Record

Measure = Callable[[Job, Rendezvous | None], Record]


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    # The slow imports come after `die_with_parent`.
    with loading():
        from dpbench.jobs.worker import measured
    serve(measured, options.requests_fd)


def serve(measure: Measure, requests_fd: int) -> None:
    gc.collect()
    gc.freeze()  # a collection in a child searches only the objects of the child
    with Connection(requests_fd) as connection:
        while True:
            try:
                message = connection.recv_bytes()
            except EOFError:
                leave()
            if message != STOP:  # it came too late: the child had ended
                request = RoundRequest.model_validate_json(message)
                send_exit(connection, _run(request, measure, connection))


def _run(request: RoundRequest, measure: Measure, connection: Connection) -> Exit:
    with _places(request) as places:

        def start(record_fd: int, output_fd: int) -> Sequence[Process]:
            fds = [record_fd, *[None] * (len(places) - 1)]
            works = [
                partial(_child, partial(measure, request.job, place), fd) for place, fd in zip(places, fds, strict=True)
            ]
            return [_fork(work, connection, output_fd) for work in works]

        return supervise(start, request.timeout_s, connection.fileno())


@contextmanager
def _places(request: RoundRequest) -> Iterator[list[Rendezvous | None]]:
    size = len(request.job.case.devices)
    if (launched := request.launched) is not None:
        yield [Rendezvous(launched.rank, size, launched.port, launched.address)]
    elif not request.job.case.variant.is_per_rank:
        yield [None]
    else:
        with socket.create_server((LOOPBACK, 0)) as listener:
            port = listener.getsockname()[1]
            other_ranks = [Rendezvous(rank, size, port) for rank in range(1, size)]
            yield [Rendezvous(0, size, port, listener=listener), *other_ranks]


def _fork(work: Callable[[], object], connection: Connection, output_fd: int) -> psutil.Process:
    return psutil.Process(fork(partial(_apart, work, connection), output_fd=output_fd, starts_session=True))


def _apart(work: Callable[[], object], connection: Connection) -> None:
    connection.close()
    ballast = shifted_heap()  # noqa: F841  # held until the end
    work()


def _child(work: Callable[[], Record], record_fd: int | None) -> None:
    record = work()
    if record_fd is not None:
        send(record_fd, record.model_dump_json(by_alias=True))
    if record.outcome is not Outcome.OK:
        sys.stderr.write(f"{record.outcome}: {record.reason}\n")
        os._exit(1)
    leave()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.jobs.round_child", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--requests-fd", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
