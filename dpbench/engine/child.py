"""What every child does while it imports, and when it ends: without this, each takes a second longer."""

import argparse
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from pydantic import BaseModel

from dpbench.engine.process_tree import die_with_parent

_BALLAST, _MOST_BALLAST_BYTES = 64, 4096


@contextmanager
def loading() -> Iterator[None]:
    """Import without garbage collection, which takes a quarter of the time and finds nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def answer(respond: Callable[[str], BaseModel]) -> NoReturn:
    """Answer the request from stdin on the record pipe, and die with the parent.

    ``--record-fd N --parent-pid P`` are on the command line.
    """
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(prog=f"python -m {spec.name}" if spec else None)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent_pid)
    send(options.record_fd, respond(sys.stdin.read()).model_dump_json(by_alias=True))


def send(record_fd: int, text: str) -> NoReturn:
    """Write to the record pipe and end at once: taking an interpreter with torch down takes time."""
    with os.fdopen(record_fd, "w") as pipe:
        pipe.write(text)
    leave()


def leave() -> NoReturn:
    """End with status 0, without the functions registered to run at exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def shifted_heap() -> list[bytearray]:
    """Blocks of random size: while they are held, later tensors lie at random addresses.

    A tensor's address changes a step's time by percents, and forks of one process allocate alike.
    """
    return [bytearray(1 + int.from_bytes(os.urandom(2)) % _MOST_BALLAST_BYTES) for _ in range(_BALLAST)]


def run_and_exit(work: Callable[[], object]) -> NoReturn:
    """In a forked process, call `work` and exit with 0, or with 1 and a traceback if it raises."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
