"""What every child does while it imports, and when it ends. Without this, each of the two takes a second longer."""

import argparse
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from pydantic import BaseModel

from dpbench.processes.process_tree import die_with_parent

_BALLAST, _MOST_BALLAST_BYTES = 64, 4096


@contextmanager
def loading() -> Iterator[None]:
    """Switch the garbage collector off while modules are imported.

    Imported objects stay alive, so searching them for garbage finds nothing. It takes a quarter of the import time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def answer(respond: Callable[[str], BaseModel]) -> NoReturn:
    """Be a child: take the request from stdin, and send the response to the record pipe.

    ``--record-fd N --parent-pid P`` are on the command line. The child dies with its parent.
    """
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(prog=f"python -m {spec.name}" if spec else None)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent_pid)
    send(options.record_fd, respond(sys.stdin.read()).model_dump_json(by_alias=True))


def send(record_fd: int, text: str) -> NoReturn:
    """Write the child's response to the record pipe and end this process at once.

    A normal exit would first take down an interpreter that holds torch, which takes time and helps nothing.
    """
    with os.fdopen(record_fd, "w") as pipe:
        pipe.write(text)
    leave()


def leave() -> NoReturn:
    """End this process with status 0, without the functions registered to run at exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def shifted_heap() -> list[bytearray]:
    """Return blocks of random size.

    While they are held, all later tensors lie at random addresses. The address of a tensor changes a step's time by
    percents. Forks of one process allocate alike, so the sides of a gate or the cases of a round would share a memory
    layout by chance. A case with a name of another length would differ.
    """
    return [bytearray(1 + int.from_bytes(os.urandom(2)) % _MOST_BALLAST_BYTES) for _ in range(_BALLAST)]


def run_and_exit(work: Callable[[], object]) -> NoReturn:
    """In a forked process, call `work` and exit.

    The rest of the forking program does not run. The exit status is 0, or 1 with a traceback on stderr if `work`
    raises.
    """
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
