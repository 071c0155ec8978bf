"""Join tensors from several devices to one; the adjoint cuts and sends the gradient back."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dpbench.parallel.lanes import Stream, current_stream, is_link, use_stream, wait_stream
from dpbench.parallel.transfer import copy_into, copy_to

_SCALARS = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; "
    "will instead unsqueeze and return a vector."
)


@dataclass(frozen=True)
class Target:
    """The device that outputs are gathered on, and one near stream per lane, or no stream.

    Without streams, copies run on the caller's own stream.
    """

    device: torch.device
    nears: tuple[Stream, ...]
    is_staged: bool = False

    def streams(self) -> list[Stream]:
        """The streams to copy on; the caller's current stream if there are none."""
        return list(self.nears) or [current_stream(self.device)]


def join_tensors(tensors: Sequence[Tensor], target: Target, dim: int) -> Tensor:
    """Concatenate tensors along `dim` on the target's device; differentiable to any order.

    0-dim tensors become a vector, with the stock warning. Raises TypeError if a replica gave no tensor, and IndexError
    if the first tensor has no dimension `dim`.
    """
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"replica 0 gave a tensor where replica {i} gave {type(tensor).__name__}; cannot gather")
    if dim == 0 and all(tensor.dim() == 0 for tensor in tensors):
        warnings.warn(_SCALARS, stacklevel=2)
        tensors = [tensor.view(1) for tensor in tensors]
    dim = _counted_from_front(tensors[0], dim)
    if not any(is_link(target.device, tensor.device) for tensor in tensors):
        return torch.cat(list(tensors), dim)
    if torch._C._are_functorch_transforms_active():  # a transform needs operators that it knows
        return torch.cat([copy_to(tensor, target.device, target.is_staged) for tensor in tensors], dim)
    return Join.apply(target, dim, *tensors)


class Join(Function):
    """Copies every part straight to its place in the result, as soon as its lane is done.

    Producers: the current streams of the parts' devices. Consumer: the current stream of the target's device, which
    waits for the near streams. Backward does the same in the other direction.
    """

    @staticmethod
    def forward(ctx: Any, target: Target, dim: int, *tensors: Tensor) -> Tensor:
        _check_sizes(tensors, dim)
        ctx.target, ctx.dim = target, dim
        ctx.sizes = [tensor.size(dim) for tensor in tensors]
        ctx.devices = [tensor.device for tensor in tensors]
        joined = _empty_for(tensors, sum(ctx.sizes), dim, target.device)
        parts = joined.split(ctx.sizes, dim)
        here = current_stream(target.device)
        try:
            for part, tensor, near in zip(parts, tensors, cycle(target.streams()), strict=False):
                wait_stream(near, here)
                with use_stream(target.device, near):
                    copy_into(part, tensor, target.is_staged)
        finally:  # after an error too, because the memory of the copies that were made is free then
            for near in target.nears:
                wait_stream(here, near)
        return joined

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target = ctx.target
        grads = []
        parts = grad.split(ctx.sizes, ctx.dim)
        here = current_stream(target.device)
        try:
            for part, device, near in zip(parts, ctx.devices, cycle(target.streams()), strict=False):
                wait_stream(near, here)
                with use_stream(target.device, near):
                    grads.append(copy_to(part, device, target.is_staged) if is_link(target.device, device) else part)
        finally:
            for near in target.nears:
                wait_stream(here, near)
        return (None, None, *grads)


def _counted_from_front(first: Tensor, dim: int) -> int:
    """The dimension, counted from the front. Raises IndexError if the first tensor does not have it."""
    index = dim if dim >= 0 else dim + first.dim()
    if not 0 <= index < first.dim():
        raise IndexError(f"Dimension out of range: cannot gather tensors of {first.dim()} dimensions along {dim}")
    return index


def _check_sizes(tensors: Sequence[Tensor], dim: int) -> None:
    """Raise RuntimeError, with the stock text, if sizes do not match."""
    first = tensors[0]
    for tensor in tensors:
        expected = list(first.shape)
        if tensor.dim() == first.dim():
            expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Gather got an input of invalid size: got {list(tensor.shape)}, but expected {expected}"
            )


def _empty_for(tensors: Sequence[Tensor], size: int, dim: int, device: torch.device) -> Tensor:
    """An empty tensor for the joined parts; channels_last if all parts are."""
    shape = list(tensors[0].shape)
    shape[dim] = size
    dtype = reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
    is_last = all(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) for t in tensors)
    memory_format = torch.channels_last if is_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, device=device, memory_format=memory_format)
