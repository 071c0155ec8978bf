"""The plan of the buckets: which tensors are sent together. Pure functions."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor to send.

    Items share a bucket only if their kinds are equal; an item without a kind is sent alone.
    """

    kind: Hashable | None
    byte_count: int


def plan_buckets(items: Sequence[Item], bucket_bytes: int, first_bucket_bytes: int) -> list[list[int]]:
    """The indices of the items, bucket by bucket, in the order of the buckets' first items.

    A bucket is closed when it holds at least `bucket_bytes`, as the stock broadcast closes its chunks
    (``take_tensors`` in torch/csrc/utils/tensor_flatten.cpp). The first bucket is closed at `first_bucket_bytes`
    if that costs no additional bucket. Then the first layers can start early.
    """
    plain = _fill(items, bucket_bytes, bucket_bytes)
    eager = _fill(items, bucket_bytes, min(first_bucket_bytes, bucket_bytes))
    return eager if len(eager) <= len(plain) else plain


def put(values: Sequence[T], into: list[T], indices: Sequence[int]) -> None:
    """Set ``into[indices[k]] = values[k]`` for all k.

    It is one slice assignment if the indices are consecutive, as those of most buckets are.
    """
    first, last = indices[0], indices[-1]
    if last - first + 1 == len(indices):  # a bucket's indices ascend
        into[first : last + 1] = values
    else:
        for i, value in zip(indices, values, strict=True):
            into[i] = value


def _fill(items: Sequence[Item], bucket_bytes: int, first_bucket_bytes: int) -> list[list[int]]:
    buckets: list[list[int]] = []
    open_buckets: dict[Hashable, tuple[list[int], int]] = {}
    for i, item in enumerate(items):
        if item.kind is None:
            buckets.append([i])
            continue
        if item.kind not in open_buckets:
            buckets.append([])
            open_buckets[item.kind] = (buckets[-1], 0)
        members, filled = open_buckets.pop(item.kind)
        members.append(i)
        filled += item.byte_count
        if filled < (first_bucket_bytes if members is buckets[0] else bucket_bytes):
            open_buckets[item.kind] = (members, filled)
    return buckets
