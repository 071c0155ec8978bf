"""Put the replicas' outputs together on one device. The adjoint, cutting the gradient, is autograd's own."""

import copy
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.devices import CPU, DeviceLike, resolve_device

_MINUS_ONE = (
    'Using -1 to represent CPU tensor is deprecated. Please use a device object or string instead, e.g., "cpu".'
)
_SCALARS = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; "
    "will instead unsqueeze and return a vector."
)


def gather(outputs: Any, target_device: DeviceLike, dim: int = 0) -> Any:
    """One value of the form of ``outputs[0]``, which decides, as in stock.

    Tensors are concatenated along `dim` on `target_device`; 0-dim tensors become a vector, with the stock
    warning. Dicts, named tuples, tuples, lists and dataclasses are gathered member by member. None stays None.
    Anything else, as numbers and strings, becomes a list with one entry per replica.
    """
    if target_device == -1:
        warnings.warn(_MINUS_ONE, FutureWarning, stacklevel=2)
    return _gather(list(outputs), resolve_device(target_device), dim)


def _gather(outputs: list[Any], device: torch.device, dim: int) -> Any:
    first = outputs[0]
    if isinstance(first, Tensor):
        return join_tensors(outputs, device, dim)
    if isinstance(first, dict):
        return _gather_items(outputs, device, dim)
    if isinstance(first, tuple | list):
        make: Callable[[list[Any]], Any] = getattr(first, "_make", type(first))  # a named tuple has _make
        return make([_gather(list(members), device, dim) for members in zip(*outputs, strict=True)])
    if dataclasses.is_dataclass(first):
        return _gather_fields(outputs, device, dim)
    return None if first is None else outputs


def _gather_items(outputs: list[Any], device: torch.device, dim: int) -> Any:
    first = outputs[0]
    if not all(len(first) == len(output) for output in outputs):
        raise ValueError("All dicts must have the same number of keys")
    return type(first)((key, _gather([output[key] for output in outputs], device, dim)) for key in first)


def _gather_fields(outputs: list[Any], device: torch.device, dim: int) -> Any:
    gathered = copy.copy(outputs[0])
    for field in dataclasses.fields(gathered):
        values = [getattr(output, field.name) for output in outputs]
        # Past __init__ and frozen: the value is new, and __post_init__ has had its say in each replica.
        object.__setattr__(gathered, field.name, _gather(values, device, dim))
    return gathered


def join_tensors(tensors: Sequence[Tensor], device: torch.device, dim: int) -> Tensor:
    """One tensor on `device`, differentiable to any order."""
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"replica 0 gave a tensor where replica {i} gave {type(tensor).__name__}; cannot gather")
    if dim == 0 and all(tensor.dim() == 0 for tensor in tensors):
        warnings.warn(_SCALARS, stacklevel=2)
        tensors = [tensor.view(1) for tensor in tensors]
    # A copy to the CPU is awaited: nothing on the host would wait for its end otherwise.
    return torch.cat([tensor.to(device, non_blocking=device != CPU) for tensor in tensors], dim)
