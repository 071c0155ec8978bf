"""The host memory that each step keeps. A step that keeps any makes a long run fail.

One step cannot show it: caches fill, and lists grow in jumps. So hundreds of steps are taken between two readings.
"""

import ctypes
import gc
import sys
from collections.abc import Callable
from math import floor

from dpbench.results.counts import Kept


_TENSOR_BYTES = 64
"""The least memory of a CPU tensor: torch aligns each to so many bytes."""


class _Mallinfo2(ctypes.Structure):
    """What glibc's ``mallinfo2`` returns (mallinfo(3)); all fields are sizes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def kept_per_step(step: Callable[[], object], steps: int) -> Kept | None:
    """Take `steps` steps twice, and return what each of the second ones keeps; None without glibc's ``mallinfo2``.

    Half of the steps are a warm-up. Garbage is collected before each reading.
    """
    in_use = _malloc_reader()
    if in_use is None:
        return None
    readings = []
    for _ in range(2):
        for _ in range(steps):
            step()
        gc.collect()
        readings.append((sys.getallocatedblocks(), in_use()))
    (blocks, malloc_bytes), (blocks_after, malloc_bytes_after) = readings
    return Kept(
        python_blocks=whole_units((blocks_after - blocks) / steps, 1),
        malloc_bytes=whole_units((malloc_bytes_after - malloc_bytes) / steps, _TENSOR_BYTES),
    )


def whole_units(per_step: float, unit: int) -> int:
    """Return the kept amount as a whole multiple of `unit`, rounded down, at least 0. Pure.

    A tenth of a unit that is missing is forgiven, because other memory may be released meanwhile.
    """
    return max(0, unit * floor(per_step / unit + 0.1))


def _malloc_reader() -> Callable[[], int] | None:
    """Return a function that returns the bytes in use in malloc's memory, or None if the C library has none."""
    try:
        read = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    read.restype = _Mallinfo2

    def in_use() -> int:
        found = read()
        return int(found.uordblks + found.hblkhd)

    return in_use
