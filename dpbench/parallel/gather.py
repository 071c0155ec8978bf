"""Gather the replicas' outputs on one device.

Autograd's own nodes are the adjoint: they cut the gradient.
"""

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.join import Target, join_tensors
from dpbench.parallel.policy import DEFAULT_POLICY, Policy, check_policy

_MINUS_ONE = (
    'Using -1 to represent CPU tensor is deprecated. Please use a device object or string instead, e.g., "cpu".'
)


def gather(outputs: Any, target_device: DeviceLike, dim: int = 0, policy: Policy = DEFAULT_POLICY) -> Any:
    """Gather outputs to one value of the form of ``outputs[0]``, as stock does.

    Tensors are concatenated along `dim` on `target_device`. 0-dim tensors become a vector, with the stock warning.
    Dicts, named tuples, tuples, lists and dataclasses are gathered member by member. So are other collections that
    their type can make from an iterable of members. None stays None. Anything else, such as a number or a string,
    becomes a list with one entry per replica. Raises ValueError without outputs.
    """
    check_policy(policy)
    return gather_to(Target(resolve_target(target_device), (), policy.host_staged), outputs, dim)


def resolve_target(device: DeviceLike) -> torch.device:
    """Like `resolve_device`, but ``-1`` gives the stock warning.

    Stock warns at each gather, not at construction.
    """
    if device == -1:
        warnings.warn(_MINUS_ONE, FutureWarning, stacklevel=3)
    return resolve_device(device)


def gather_to(target: Target, outputs: Sequence[Any], dim: int) -> Any:
    """Like `gather`, on the streams of the target."""
    if not len(outputs):
        raise ValueError(f"outputs is {outputs!r}; the output of at least one replica is needed")
    return _gather(list(outputs), target, dim)


def _gather(outputs: list[Any], target: Target, dim: int) -> Any:
    first = outputs[0]
    if isinstance(first, Tensor):
        return join_tensors(outputs, target, dim)
    if isinstance(first, dict):
        _check_alike(outputs, dict)
        return _gather_items(outputs, target, dim)
    if isinstance(first, tuple | list) and not isinstance(first, torch.Size):
        _check_alike(outputs, tuple | list)
        make: Callable[[list[Any]], Any] = getattr(first, "_make", type(first))  # a named tuple has _make
        return make([_gather(list(members), target, dim) for members in zip(*outputs, strict=True)])
    if dataclasses.is_dataclass(first):
        _check_alike(outputs, type(first))
        return _gather_fields(outputs, target, dim)
    if first is not None and _is_collection(first):
        return _gather_collection(outputs, target, dim)
    return None if first is None else outputs


def _is_collection(value: Any) -> bool:
    """Whether the value is an ordered iterable, not an iterator, with tensors in it.

    Arrays are no such collections.
    """
    if not isinstance(value, Iterable) or isinstance(value, Iterator | Set) or hasattr(value, "__array__"):
        return False
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(list(value)))


def _gather_collection(outputs: list[Any], target: Target, dim: int) -> Any:
    """The type's constructor called with the gathered members, as in stock.

    If the constructor refuses them, the outputs stay a list.

    Examples are a deque, and transformers' caches of keys and values.
    """
    _check_alike(outputs, type(outputs[0]))
    members = [_gather(list(column), target, dim) for column in zip(*outputs, strict=True)]
    try:
        return type(outputs[0])(members)
    except (TypeError, AttributeError):  # the constructor takes other arguments
        return outputs


def _check_alike(outputs: list[Any], kind: Any) -> None:
    for i, output in enumerate(outputs):
        if not isinstance(output, kind):
            given, other = type(outputs[0]).__name__, type(output).__name__
            raise TypeError(f"replica 0 gave a {given} where replica {i} gave {other}; cannot gather")


def _gather_items(outputs: list[Any], target: Target, dim: int) -> Any:
    first = outputs[0]
    if not all(len(first) == len(output) for output in outputs):
        raise ValueError("All dicts must have the same number of keys")
    for i, output in enumerate(outputs):
        if first.keys() != output.keys():
            given, other = list(first), list(output)
            raise ValueError(f"replica 0 gave the keys {given} where replica {i} gave {other}; cannot gather")
    gathered = copy.copy(first)  # the type's constructor may not take items; that of defaultdict does not
    for key in first:
        gathered[key] = _gather([output[key] for output in outputs], target, dim)
    return gathered


def _gather_fields(outputs: list[Any], target: Target, dim: int) -> Any:
    gathered = copy.copy(outputs[0])
    for field in dataclasses.fields(gathered):
        values = [getattr(output, field.name) for output in outputs]
        # Without __init__, and though the dataclass may be frozen: __post_init__ has already run in each replica.
        object.__setattr__(gathered, field.name, _gather(values, target, dim))
    return gathered
