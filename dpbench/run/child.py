"""The two ends of a child's life: loading torch, and leaving. Each would take a second more than it needs to."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
