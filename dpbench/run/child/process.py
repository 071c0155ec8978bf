"""The two ends of a child's life: loading torch, and leaving. Each would take a second more than it needs to."""

import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def loading() -> Iterator[None]:
    """Around imports: what they make stays, so that looking among it for garbage, a quarter of their time, is waste."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def answer(record_fd: int, text: str) -> None:
    """Write the child's answer and end it at once: taking apart an interpreter that holds torch serves nobody."""
    with os.fdopen(record_fd, "w") as pipe:
        pipe.write(text)
    leave()


def leave() -> None:
    """End this process well, without running what is left to run at exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_and_exit(work: Callable[[], object]) -> NoReturn:
    """For a fork: work, and end without what the forking process would do at its end."""
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
