"""Broadcast tensors to all lanes in few messages, and sum their gradients on the way back.

A message is one flat tensor that holds several tensors of a dtype. The stock wrapper limits it to 10 MiB, but cuts
the two directions differently: see `broadcast_groups` and `reduction_groups`.

The code follows torch/nn/parallel/_functions.py (autograd nodes), torch/csrc/cuda/comm.cpp (broadcast) and
torch/nn/parallel/comm.py (reduction).
"""

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
"""A tensor's kind and its bytes. All tensors of a message have the same kind."""


def broadcast_groups(items: Sequence[Item], limit_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """Return the positions in `items` of each message's tensors.

    A message ends as soon as it *reaches* the limit. So it exceeds the limit by less than its last tensor. Source:
    `take_tensors` in torch/csrc/utils/tensor_flatten.cpp; compiled from torch 2.13.0, it cut 600 random lists in the
    same way.
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
    """Return the positions in `items` of each message's tensors.

    A message ends before it would *exceed* the limit. So only a single tensor above the limit makes a message above
    it. Source: `_take_tensors` in torch/_utils.py.
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
    """Autograd node from n tensors on ``devices[0]`` to n for each lane, in lane order.

    Lane 0 gets the tensors themselves.
    """

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
    """Autograd node from n tensors for each lane, in lane order, to n sums on ``devices[0]``."""

    @staticmethod
    def forward(ctx: Any, devices: Sequence[torch.device], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.devices = devices
        n = len(tensors) // len(devices)
        return tuple(reduce_add_coalesced([tensors[i : i + n] for i in range(0, len(tensors), n)], devices[0]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *NaiveBroadcast.apply(ctx.devices, *gradients)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """Return each lane's tensors. Lane 0 gets `tensors` themselves.

    The other lanes get copies, even if a device repeats.
    """
    lanes = [list(tensors) for _ in devices]
    wires = [_as_real(t) for t in tensors]
    for group in broadcast_groups([_item(t) for t in wires]):
        members = [wires[i] for i in group]
        flat = _flatten_dense_tensors(members)
        for lane, device in zip(lanes[1:], devices[1:], strict=True):
            message = flat.to(device, copy=True)
            for i, part in zip(group, _unflatten_dense_tensors(message, members), strict=True):
                lane[i] = _as_sent(part, like=tensors[i])
    return lanes


def reduce_add_coalesced(lanes: Sequence[Sequence[Tensor]], device: torch.device) -> list[Tensor]:
    """Return the sums over the lanes, on `device`, which must be lane 0's.

    A sum of sparse tensors is sparse.
    """
    sums = list(lanes[0])
    dense = []
    for i, tensors in enumerate(zip(*lanes, strict=True)):
        if all(t.is_sparse for t in tensors):
            sums[i] = _add(tensors, device)
        else:
            dense.append(i)
    wires = [[_as_real(lane[i].to_dense() if lane[i].is_sparse else lane[i]) for i in dense] for lane in lanes]
    for group in reduction_groups([_item(t) for t in wires[0]]):
        messages = [_flatten_dense_tensors([lane[i] for i in group]) for lane in wires]
        total = _add(messages, device)
        for i, part in zip(group, _unflatten_dense_tensors(total, [wires[0][i] for i in group]), strict=True):
            sums[dense[i]] = _as_sent(part, like=lanes[0][dense[i]])
    return sums


def _add(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    if len(tensors) == 1:
        # Autograd returns a view if a node returns its input itself, and sparse tensors have no views.
        return tensors[0].detach()
    total = tensors[0] + tensors[1].to(device)
    for tensor in tensors[2:]:
        total.add_(tensor.to(device))
    return total


def _item(tensor: Tensor) -> Item:
    return tensor.dtype, tensor.numel() * tensor.element_size()


def _as_real(tensor: Tensor) -> Tensor:
    """Return a complex tensor as a real view.

    So one message can hold real and complex tensors.
    """
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _as_sent(part: Tensor, like: Tensor) -> Tensor:
    """Return a part of a message as the tensor that was sent.

    `.data` gives each part its own version counter, although all parts share the message's storage.
    """
    return torch.view_as_complex(part.data) if like.is_complex() else part.data
