"""What every child does while it imports, and when it ends."""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, get_type_hints

from pydantic import BaseModel

from dpbench.engine.process_tree import die_with_parent

_BALLAST = 64
_MOST_BALLAST_BYTES = 4096


@contextmanager
def loading() -> Iterator[None]:
    """Import without garbage collection, which takes a quarter of the time and collects nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def answer(respond: Callable[[Any], BaseModel]) -> NoReturn:
    """`respond` is annotated with the model of its request."""
    model: type[BaseModel] = next(iter(get_type_hints(respond).values()))
    record_fd, request = read_request()
    send(record_fd, respond(model.model_validate_json(request)).model_dump_json(by_alias=True))


def read_request() -> tuple[int, str]:
    """Die with the parent from now on; return the record pipe's descriptor and the request from stdin.

    ``--record-fd N --parent-pid P`` are on the command line.
    """
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(prog=f"python -m {spec.name}" if spec else None)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent_pid)
    return options.record_fd, sys.stdin.read()


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
