"""Tensors handed out to all lanes in few messages, and the adjoint: the lanes' gradients summed on the first.

Restates torch/nn/parallel/_functions.py (the autograd nodes), torch/csrc/cuda/comm.cpp (broadcast) and
torch/nn/parallel/comm.py (reduction).
"""
# MERGED-DOC variants.coalescing: """Which tensors the stock wrapper sends in one message. Its two directions cut at the limit differently."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Function

LIMIT_BYTES = 10 * 2**20
"""The default of `broadcast_coalesced` and `reduce_add_coalesced`, torch/nn/parallel/comm.py."""

Item = tuple[Hashable, int]
"""A tensor's kind, of which a message has one, and its bytes."""


def broadcast_groups(items: Sequence[Item], limit_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """Positions in `items`, message by message: one is sent as soon as it *reaches* the limit.

    `take_tensors` in torch/csrc/utils/tensor_flatten.cpp; compiled from torch 2.13.0, it cut 600 random lists alike.
    A message exceeds the limit by less than its last tensor.
    """
    groups: list[list[int]] = []
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    held_bytes: Counter[Hashable] = Counter()
    for i, (kind, n_bytes) in enumerate(items):
        waiting[kind].append(i)
        held_bytes[kind] += n_bytes
        if held_bytes[kind] >= limit_bytes:
            groups.append(waiting.pop(kind))
            held_bytes[kind] = 0
    return groups + list(waiting.values())


def reduction_groups(items: Sequence[Item], limit_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """Positions in `items`, message by message: one is sent before it would *exceed* the limit.

    `_take_tensors` in torch/_utils.py. Only a tensor over the limit makes a message over it.
    """
    groups: list[list[int]] = []
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    held_bytes: Counter[Hashable] = Counter()
    for i, (kind, n_bytes) in enumerate(items):
        if held_bytes[kind] > 0 and held_bytes[kind] + n_bytes > limit_bytes:
            groups.append(waiting.pop(kind))
            held_bytes[kind] = 0
        waiting[kind].append(i)
        held_bytes[kind] += n_bytes
    return groups + list(waiting.values())


class NaiveBroadcast(Function):
    """From n tensors on ``devices[0]`` to n for each device, lane after lane; lane 0 has the tensors themselves."""

    @staticmethod
    def forward(ctx: Any, devices: Sequence[torch.device], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.devices = devices
        lanes = broadcast_coalesced(tensors, devices)
        frozen = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if not needed]
        ctx.mark_non_differentiable(*(lane[i] for lane in lanes for i in frozen))
        return tuple(chain.from_iterable(lanes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ReduceAdd.apply(ctx.devices, *gradients)


class ReduceAdd(Function):
    """From n tensors for each device, lane after lane, to their n sums on ``devices[0]``."""

    @staticmethod
    def forward(ctx: Any, devices: Sequence[torch.device], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.devices = devices
        n = len(tensors) // len(devices)
        return tuple(reduce_add_coalesced([tensors[i : i + n] for i in range(0, len(tensors), n)], devices[0]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *NaiveBroadcast.apply(ctx.devices, *gradients)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """Each lane's tensors: lane 0 has `tensors` themselves, the others copies, also where a device repeats."""
    lanes = [list(tensors) for _ in devices]
    wires = [_wire(t) for t in tensors]
    for group in broadcast_groups([_item(t) for t in wires]):
        members = [wires[i] for i in group]
        flat = _flatten_dense_tensors(members)
        for lane, device in zip(lanes[1:], devices[1:], strict=True):
            message = flat.to(device, copy=True)
            for i, part in zip(group, _unflatten_dense_tensors(message, members), strict=True):
                lane[i] = _unwire(part, like=tensors[i])
    return lanes


def reduce_add_coalesced(lanes: Sequence[Sequence[Tensor]], device: torch.device) -> list[Tensor]:
    """The sums over the lanes, on `device`, where lane 0 is; a sum of sparse tensors is sparse."""
    sums = list(lanes[0])
    dense = []
    for i, tensors in enumerate(zip(*lanes, strict=True)):
        if all(t.is_sparse for t in tensors):
            sums[i] = _add(tensors, device)
        else:
            dense.append(i)
    wires = [[_wire(lane[i].to_dense() if lane[i].is_sparse else lane[i]) for i in dense] for lane in lanes]
    for group in reduction_groups([_item(t) for t in wires[0]]):
        messages = [_flatten_dense_tensors([lane[i] for i in group]) for lane in wires]
        total = _add(messages, device)
        for i, part in zip(group, _unflatten_dense_tensors(total, [wires[0][i] for i in group]), strict=True):
            sums[dense[i]] = _unwire(part, like=lanes[0][dense[i]])
    return sums


def _add(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    if len(tensors) == 1:
        # Not the tensor itself: autograd takes a view of an input that is returned, which a sparse one does not have.
        return tensors[0].detach()
    total = tensors[0] + tensors[1].to(device)
    for tensor in tensors[2:]:
        total.add_(tensor.to(device))
    return total


def _item(tensor: Tensor) -> Item:
    return tensor.dtype, tensor.numel() * tensor.element_size()


def _wire(tensor: Tensor) -> Tensor:
    """Complex tensors travel as real ones, in the messages of these."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _unwire(part: Tensor, like: Tensor) -> Tensor:
    """`.data`: the parts of a message share its storage, and each has a version counter of its own."""
    return torch.view_as_complex(part.data) if like.is_complex() else part.data
