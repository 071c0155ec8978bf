"""Shapes without numbers: operators and copies on tensors of torch's ``meta`` device.

A ``meta`` tensor has sizes, strides and a storage without memory. In a simulation without numbers it stands where the
CPU tensor stands otherwise, so nothing is computed. Numbers on the host are then zeros.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpbench.simulator.arguments import map_tensors
from dpbench.simulator.operators import aten, decides_size

_BAGS = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
_SUM, _MAX = 0, 2


class NumbersNeededError(NotImplementedError):
    """An operator needs numbers, and the simulation has none."""

    def __init__(self, what: object) -> None:
        super().__init__(
            what if "needs numbers" in str(what) else f"{what} needs numbers; simulate(numbers=True) has them"
        )


def run(function: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of `function` on ``meta`` tensors.

    Raise NumbersNeededError with the name of `func` if the numbers decide its result's size.
    """
    if decides_size(func, args):
        raise NumbersNeededError(func)
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    try:
        result = function(*on_meta(args), **{name: on_meta(value) for name, value in kwargs.items()})
    except NotImplementedError as error:
        raise NumbersNeededError(func) from error
    except RuntimeError as error:
        if "meta tensor" not in str(error):
            raise
        raise NumbersNeededError(func) from error
    return _bags_as_on_cpu(result, args, kwargs) if func in _BAGS else result


def _bags_as_on_cpu(result: tuple[Tensor, ...], args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """Return an embedding bag's outputs with the sizes of the CPU kernel; on ``meta`` they have those of CUDA.

    Source: aten/src/ATen/native/EmbeddingBag.cpp.
    """
    output, bag_of_index, bag_sizes, largest = result
    mode = args[4] if len(args) > 4 else kwargs.get("mode", _SUM)
    padding = args[8] if len(args) > 8 else kwargs.get("padding_idx", -1)
    if mode != _MAX:
        largest = bag_sizes.new_empty(bag_sizes.size())
    if mode == _SUM and padding < 0 and output.dtype in (torch.float32, torch.float16):
        bag_of_index = bag_of_index.new_empty(0)
    return output, bag_of_index, bag_sizes, largest


def on_meta(value: Any) -> Any:
    """Return the same nesting with each tensor on ``meta``; there it keeps its sizes and strides."""
    return map_tensors(value, lambda tensor: tensor if tensor.is_meta else tensor.to("meta"))


def zeros(shape: Tensor) -> Tensor:
    """Return a CPU tensor of zeros with the sizes and strides of a ``meta`` tensor.

    Raise NumbersNeededError for a sparse tensor.
    """
    if shape.layout != torch.strided:
        raise NumbersNeededError(f"copying a tensor of layout {shape.layout} to the host")
    return torch.empty_strided(shape.size(), shape.stride(), dtype=shape.dtype).zero_()
