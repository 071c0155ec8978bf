"""Garbage collection, turned off while many records are in memory."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn garbage collection off.

    It would take half of the time in which records are parsed and compared, and neither makes cycles. As a decorator,
    it lasts until the function's variables are freed. So no collection visits their records afterwards.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
