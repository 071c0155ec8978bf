"""Build one replica of the base for each lane, as torch/nn/parallel/replicate.py does."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpbench.variants.naive_broadcast import NaiveBroadcast, broadcast_coalesced


def replicate(base: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """Return a replica of `base` on each device. Replica 0 shares the base's storage.

    The base's tensors are on ``devices[0]``.
    A replica's parameters are plain attributes: they are outputs of the autograd node that leads back to the base.
    If the base uses a module or tensor twice, each replica does too.
    """
    buffers = list(base.buffers())
    copies = [
        {**parameters, **with_grad, **without_grad}
        for parameters, with_grad, without_grad in zip(
            _broadcast(list(base.parameters()), devices),
            _broadcast([buffer for buffer in buffers if buffer.requires_grad], devices),
            _broadcast([buffer for buffer in buffers if not buffer.requires_grad], devices),
            strict=True,
        )
    ]
    return [_rebuild(base, lane) for lane in copies]


def _broadcast(tensors: list[Tensor], devices: Sequence[torch.device]) -> list[dict[Tensor, Tensor]]:
    """Return for each lane the copy of each tensor."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        flat = NaiveBroadcast.apply(devices, *tensors)
        lanes = [flat[i : i + len(tensors)] for i in range(0, len(flat), len(tensors))]
    else:
        lanes = broadcast_coalesced(tensors, devices)
    return [dict(zip(tensors, lane, strict=True)) for lane in lanes]


def _rebuild(base: nn.Module, copies: dict[Tensor, Tensor]) -> nn.Module:
    """Return a tree of new modules like `base`, in which each tensor is replaced by its copy."""
    shells = {module: module._replicate_for_data_parallel() for module in base.modules()}
    for module, shell in shells.items():
        for name, child in module._modules.items():
            if child is not None:
                setattr(shell, name, shells[child])
        for name, parameter in module._parameters.items():
            if parameter is None:
                shell._parameters[name] = None
            else:
                setattr(shell, name, copies[parameter])
        for name, buffer in module._buffers.items():
            if buffer is not None:
                setattr(shell, name, copies[buffer])
    return shells[base]
