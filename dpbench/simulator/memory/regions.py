"""The bytes of a strided tensor, and whether two tensors have a byte in common. Without torch."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes of a tensor: all of ``[start, stop)``, or the part that `runs` describes.

    `runs` is ``((size, stride), ..., (length, 1))``, outermost first: `length` bytes, repeated at every `stride` bytes.
    """

    start: int
    stop: int
    runs: tuple[tuple[int, int], ...] | None = None

    def overlaps(self, other: "Region") -> bool:
        if max(self.start, other.start) >= min(self.stop, other.stop):
            return False
        if self.runs is None and other.runs is None:
            return True
        mine, theirs = _intervals(self), _intervals(other)
        # Two runs overlap if the first of theirs that ends after my start also begins before my end.
        following = np.searchsorted(theirs[:, 1], mine[:, 0], side="right")
        inside = following < len(theirs)
        return bool(np.any(theirs[following[inside], 0] < mine[inside, 1]))


def region(address: int, sizes: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Region:
    """`address` is in bytes, `sizes` and `strides` in elements."""
    if 0 in sizes:
        return Region(address, address)
    extent, number, length = 1, 1, 1
    runs = []
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size == 1 or stride == 0:
            continue
        extent += (size - 1) * stride
        number *= size
        if stride <= length:  # adjacent, or overlapping as in unfold
            length = max(length, (size - 1) * stride + length)
        else:
            runs.append((size, stride * itemsize))
    dense = extent <= number
    geometry = None if dense else (*reversed(runs), (length * itemsize, 1))
    return Region(address, address + extent * itemsize, geometry)


@lru_cache(maxsize=256)
def _intervals(of: Region) -> NDArray[np.int64]:
    """Sorted, disjoint rows ``[start, stop)``: int64, shape (n, 2)."""
    if of.runs is None:
        return np.array([[of.start, of.stop]])
    starts = np.array([of.start])
    *outer, (length, _) = of.runs
    for size, stride in outer:
        starts = (starts[:, None] + np.arange(size) * stride).reshape(-1)
    starts.sort()
    stops = np.maximum.accumulate(starts + length)
    first = np.concatenate(([True], starts[1:] > stops[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack([starts[first], stops[last]], axis=1)
