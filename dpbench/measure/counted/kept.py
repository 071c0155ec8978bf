"""The host memory that each of hundreds of steps keeps, which would make a long run fail.

One step cannot show it: caches fill, and lists grow in jumps.
"""

import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import floor

from dpbench.records.count_record import Kept

_READINGS = 5
_OBJECT_BLOCKS = 4
"""Caches look like fewer kept blocks: ``mlp/tiny`` 1.5 a step after 60 steps, 0.7 after 240."""
_TENSOR_BYTES = 64
"""The least memory of a CPU tensor, by torch's alignment."""


_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def kept_per_step(step: Callable[[], object], steps: int) -> Kept | None:
    """What each of `steps` steps keeps; None without glibc's ``mallinfo2``.

    The least increase between two of `_READINGS` readings counts: what fills a cache is not in all of them.
    """
    in_use = _malloc_reader()
    if in_use is None:
        return None
    between = max(1, steps // _READINGS)
    blocks, malloc_bytes = list[int](), list[int]()
    for _ in range(_READINGS):
        for _ in range(between):
            step()
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        malloc_bytes.append(in_use())
    return Kept(
        python_blocks=whole_units(_least_increase(blocks) / between, _OBJECT_BLOCKS),
        malloc_bytes=whole_units(_least_increase(malloc_bytes) / between, _TENSOR_BYTES),
    )


def _least_increase(readings: Sequence[int]) -> int:
    return min(after - before for before, after in pairwise(readings))


def whole_units(per_step: float, unit: int) -> int:
    """The kept amount as a multiple of `unit`, rounded down, at least 0.

    A missing tenth of a unit is forgiven, because other memory may be released meanwhile.
    """
    return max(0, unit * floor(per_step / unit + 0.1))


def _malloc_reader() -> Callable[[], int] | None:
    """A function that returns the bytes in use by malloc; None if the C library has none."""
    try:
        read = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    read.restype = _Mallinfo2

    def in_use() -> int:
        found = read()
        return int(found.uordblks + found.hblkhd)

    return in_use
