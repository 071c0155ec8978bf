"""Which tensors are sent together, and where each lies in a flat. Nothing here knows streams."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from dpbench.parallel.routes import piece_items

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """Items share a bucket only if their kinds are equal; an item without a kind is sent alone."""

    kind: Hashable | None
    byte_count: int


def plan_buckets(items: Sequence[Item], bucket_bytes: int, first_bucket_bytes: int) -> list[list[int]]:
    """The indices of the items, bucket by bucket.

    A bucket is closed when it holds at least `bucket_bytes`, as the stock broadcast closes its chunks (``take_tensors``
    in torch/csrc/utils/tensor_flatten.cpp).
    """
    plain = _fill(items, bucket_bytes, bucket_bytes)
    eager = _fill(items, bucket_bytes, min(first_bucket_bytes, bucket_bytes))
    return eager if len(eager) <= len(plain) else plain


def put(values: Sequence[T], into: list[T], indices: Sequence[int]) -> None:
    """Set ``into[indices[k]] = values[k]``; the indices of most buckets are consecutive."""
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


ALIGNMENT_BYTES = 256
"""Alignment of tensors in a flat: that of ``cudaMalloc`` (CUDA C++ Programming Guide, Device Memory Accesses). Kernels
that need 16 bytes fail on less, and vectorised kernels become slower.
"""
Shape = tuple[torch.Size, tuple[int, ...]]


def cut(flat: Tensor) -> Sequence[Tensor]:
    count = piece_items(flat.itemsize)
    return [flat] if len(flat) <= count else flat.split(count)


def shape_of(tensor: Tensor) -> Shape:
    """The tensor's strides, or contiguous ones if its own leave gaps."""
    count = 1
    for stride, size in sorted((st, si) for st, si in zip(tensor.stride(), tensor.shape, strict=True) if si != 1):
        if stride != count:
            return tensor.shape, torch.empty(tensor.shape, device="meta").stride()
        count *= size
    return tensor.shape, tensor.stride()


def flat_count(shapes: Sequence[Shape], dtype: torch.dtype) -> int:
    """The number of elements of a flat for tensors of these shapes."""
    *_, end = _starts_and_end(shapes, dtype)
    return end


def shaped_views(flat: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    starts = _starts_and_end(shapes, flat.dtype)
    return [flat.as_strided(*shape, start) for shape, start in zip(shapes, starts, strict=False)]


def _starts_and_end(shapes: Sequence[Shape], dtype: torch.dtype) -> list[int]:
    step = max(1, ALIGNMENT_BYTES // dtype.itemsize)
    starts, end = [], 0
    for size, _ in shapes:
        start = -(-end // step) * step
        starts.append(start)
        end = start + size.numel()
    return [*starts, end]


def with_memory_each(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies, each in a storage of its own: a tensor that grows in place writes over what is behind it in a flat."""
    copies = [torch.empty_like(tensor) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return copies


def byte_count_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def fits_flat(tensor: Tensor) -> bool:
    """Whether the tensor is dense, not quantized, and of no subclass with its own behaviour.

    An empty tensor does not fit: it is there to be resized, so it needs its own memory.
    """
    ordinary = (torch.nn.Parameter, type(torch.empty(0, device=tensor.device)))
    is_plain = tensor.layout is torch.strided and not tensor.is_quantized and tensor.numel() > 0
    return is_plain and type(tensor) in ordinary
