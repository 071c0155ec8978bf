"""Which tensors travel together. Pure."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor to send. Only items of equal `kind` share a bucket; an item without a kind travels alone."""

    kind: Hashable | None
    byte_count: int


def plan_buckets(items: Sequence[Item], bucket_bytes: int, first_bucket_bytes: int) -> list[list[int]]:
    """Indices of the items, bucket by bucket, in the order of their first items.

    A bucket is closed once it holds at least `bucket_bytes`, as the stock broadcast closes its chunks
    (``take_tensors`` in torch/csrc/utils/tensor_flatten.cpp). The first one is closed at `first_bucket_bytes`,
    so that the first layers can start early, where that costs no additional bucket.
    """
    plain = _pack(items, bucket_bytes, bucket_bytes)
    eager = _pack(items, bucket_bytes, min(first_bucket_bytes, bucket_bytes))
    return eager if len(eager) <= len(plain) else plain


def put(values: Sequence[T], into: list[T], indices: Sequence[int]) -> None:
    """``into[indices[k]] = values[k]``, at once where the indices are consecutive, as those of most buckets are."""
    first, last = indices[0], indices[-1]
    if last - first + 1 == len(indices):  # a bucket's indices ascend
        into[first : last + 1] = values
    else:
        for i, value in zip(indices, values, strict=True):
            into[i] = value


def _pack(items: Sequence[Item], bucket_bytes: int, first_bucket_bytes: int) -> list[list[int]]:
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
