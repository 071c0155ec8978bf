"""The C++ functions of ``torch.nn.parallel``, by the rules of torch/csrc/cuda/comm.cpp without NCCL."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch._utils import (
    _flatten_dense_tensors,
    _flatten_sparse_tensors,
    _reorder_tensors_as,
    _unflatten_dense_tensors,
    _unflatten_sparse_tensors,
)


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    if tensor.device.type == "sim" and tensor.get_device() != devices[0]:
        raise RuntimeError("device of broadcasted tensor must appear as the first on devices list")
    return [tensor if device == tensor.get_device() else _copied(tensor, device) for device in devices]


def _copied(tensor: Tensor, device: int) -> Tensor:
    return torch.empty_like(tensor, device=f"sim:{device}").copy_(tensor, non_blocking=True)


def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    """Raise RuntimeError for a wrong device or shape in `out`."""
    for target in out:
        if target.device.type != "sim" or target.shape != tensor.shape:
            raise RuntimeError("Expected all output tensors to be sim tensors of the source's shape")
        target.copy_(tensor, non_blocking=True)
    return list(out)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """A list of tensors for each device; each copy has its own version counter."""
    if not all(tensor.get_device() == devices[0] for tensor in tensors):
        raise RuntimeError("all tensors must be on devices[0]")
    with torch.no_grad():
        outputs: list[list[Tensor]] = [list(tensors), *([] for _ in devices[1:])]
        for chunk in _take_tensors(tensors, buffer_size):
            for output, part in zip(outputs[1:], _broadcast_chunk(chunk, devices), strict=True):
                output.extend(tensor.data for tensor in part)
        if len({tensor.type() for tensor in tensors}) > 1:
            outputs[1:] = [list(_reorder_tensors_as(output, tensors)) for output in outputs[1:]]
        return outputs


def _take_tensors(tensors: Sequence[Tensor], limit_bytes: int) -> list[list[Tensor]]:
    """A group ends when its bytes *reach* the limit (torch/csrc/utils/tensor_flatten.cpp); in torch/_utils.py, before
    it would exceed the limit.
    """
    groups: list[list[Tensor]] = []
    waiting: defaultdict[str, list[Tensor]] = defaultdict(list)
    held_bytes: Counter[str] = Counter()
    for tensor in tensors:
        kind = tensor.type()
        waiting[kind].append(tensor)
        held_bytes[kind] += _message_bytes(tensor)
        if held_bytes[kind] >= limit_bytes:
            groups.append(waiting.pop(kind))
            held_bytes[kind] = 0
    return groups + list(waiting.values())


def _message_bytes(tensor: Tensor) -> int:
    """Of a sparse tensor each item counts with the size of an index."""
    if not tensor.is_sparse:
        return tensor.numel() * tensor.element_size()
    indices = tensor._indices()
    return (indices.numel() + tensor._values().numel()) * indices.element_size()


def _broadcast_chunk(chunk: Sequence[Tensor], devices: Sequence[int]) -> list[Sequence[Tensor]]:
    if not chunk[0].is_sparse:
        flat = broadcast(_flatten_dense_tensors(chunk), devices)
        return [_unflatten_dense_tensors(part, chunk) for part in flat[1:]]
    indices, values = (broadcast(flat, devices) for flat in _flatten_sparse_tensors(chunk))
    return [_unflatten_sparse_tensors((i, v), chunk) for i, v in zip(indices[1:], values[1:], strict=True)]


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> tuple[Tensor, ...]:
    """A chunk already on its device is a view."""
    if chunk_sizes is not None and sum(chunk_sizes) != tensor.size(dim):
        raise RuntimeError(
            f"given chunk sizes don't sum up to the tensor's size (sum(chunk_sizes) == {sum(chunk_sizes)}, "
            f"but expected {tensor.size(dim)})"
        )
    if chunk_sizes is not None and min(chunk_sizes) <= 0:
        raise RuntimeError("Chunk size must be positive")
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    outputs = []
    for position, chunk in enumerate(chunks):
        stream = streams[position] if streams else None
        with stream or nullcontext():
            outputs.append(chunk.to(f"sim:{devices[position]}", non_blocking=True))
    return tuple(outputs)


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """`destination` is a device's index, -1 the host, None the current device.

    Raise RuntimeError for inputs that do not fit.
    """
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    first = tensors[0]
    for tensor in tensors:
        if tensor.device.type != "sim":
            raise RuntimeError(f"Gather expects all inputs to be on sim devices, got one on {tensor.device}")
        expected = [*first.shape[:dim], tensor.size(dim), *first.shape[dim:][1:]]
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Gather got an input of invalid size: got {list(tensor.shape)}, but expected {expected}"
            )
    sizes = [tensor.size(dim) for tensor in tensors]
    shape = list(first.shape)
    shape[dim] = sum(sizes)
    all_channels_last = all(_is_channels_last(tensor) for tensor in tensors)
    device = "cpu" if destination == -1 else "sim" if destination is None else f"sim:{destination}"
    memory_format = torch.channels_last if all_channels_last else torch.contiguous_format
    result = torch.empty(shape, dtype=first.dtype, device=device, memory_format=memory_format)
    for part, tensor in zip(result.split(sizes, dim), tensors, strict=True):
        part.copy_(tensor, non_blocking=True)
    return result


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
