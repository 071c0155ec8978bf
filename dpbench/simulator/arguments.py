"""The arguments of an operator call: the tensors in them, their CPU values, their device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpbench.simulator.tensor import NO_BITS, SimTensor, toggled
from dpbench.simulator.torch_sim import index_of


def tensors_in(values: Any) -> list[Tensor]:
    """Return all tensors in nested tuples, lists and dicts, in order."""
    found: list[Tensor] = []
    _collect(values, found)
    return found


def _collect(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        if value and isinstance(value[0], (int, float)):
            return
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


def simulated_in(values: Any) -> list[SimTensor]:
    """Return all simulated tensors in nested tuples, lists and dicts, in order."""
    return [tensor for tensor in tensors_in(values) if isinstance(tensor, SimTensor)]


def raw(value: Any) -> Any:
    """Return the same nesting with each simulated tensor replaced by its CPU tensor."""
    if isinstance(value, SimTensor):
        return value.raw if value.bits == NO_BITS else toggled(value.raw, value.bits)
    if isinstance(value, (tuple, list)):
        return type(value)([raw(item) for item in value])
    return value


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return the same nesting with each tensor replaced by `function` of it."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)([map_tensors(item, function) for item in value])
    return value


def with_index(device: Any) -> torch.device:
    """Return the device, a simulated one with its index.

    Raise RuntimeError for a device that does not exist.
    """
    device = torch.device(device)
    return torch.device("sim", index_of(device)) if device.type == "sim" else device
