"""The arguments of an operator call: the tensors in them, their CPU values, their device."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.simulator.operators import aten, decides_size
from dpbench.simulator.tensor import NO_BITS, SimTensor, toggled
from dpbench.simulator.torch_sim import index_of

_BAGS = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
_SUM = 0
_MAX = 2


def tensors_in(values: Any) -> list[Tensor]:
    tensors: list[Tensor] = []
    _collect(values, tensors)
    return tensors


def _collect(value: Any, tensors: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        tensors.append(value)
    elif isinstance(value, (tuple, list)):
        if value and isinstance(value[0], (int, float)):
            return
        for item in value:
            _collect(item, tensors)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, tensors)


def simulated_in(values: Any) -> list[SimTensor]:
    return [tensor for tensor in tensors_in(values) if isinstance(tensor, SimTensor)]


def raw(value: Any) -> Any:
    """The same nesting with CPU tensors."""
    if isinstance(value, SimTensor):
        return value.raw if value.bits == NO_BITS else toggled(value.raw, value.bits)
    if isinstance(value, (tuple, list)):
        return type(value)([raw(item) for item in value])
    return value


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        return type(value)([map_tensors(item, function) for item in value])
    return value


def with_index(device: Any) -> torch.device:
    """Raise RuntimeError for a device that does not exist."""
    device = torch.device(device)
    return torch.device("sim", index_of(device)) if device.type == "sim" else device


class NumbersNeededError(NotImplementedError):
    def __init__(self, what: object) -> None:
        super().__init__(
            what if "needs numbers" in str(what) else f"{what} needs numbers; simulate(numbers=True) has them"
        )


def run_shapes(function: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
    """`function` on ``meta`` tensors; raise NumbersNeededError if the numbers decide its result's size."""
    if decides_size(func, args):
        raise NumbersNeededError(func)
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    key = _shape_key(func, args, kwargs) if function is func else None
    shapes = _known_shapes.get(key)
    if shapes is not None:
        return _made(shapes)
    result = _run_on_meta(function, func, args, kwargs)
    if key is not None and (shapes := _shapes_of(result, tensors_in((args, kwargs)))) is not None:
        _known_shapes[key] = shapes
    return result


Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]
_known_shapes: dict[Any, Layout | tuple[Layout, ...]] = {}


def _shape_key(func: Any, args: Any, kwargs: Any) -> Any:
    """None if the result may share memory with the arguments."""
    if func not in _is_fresh:
        schema = func._schema
        _is_fresh[func] = not any(a.alias_info for a in (*schema.arguments, *schema.returns)) and not func.is_view
    if not _is_fresh[func]:
        return None
    try:
        key = (func, _layouts(args), _layouts(tuple(sorted(kwargs.items()))))
        hash(key)
    except TypeError:
        return None
    return key


_is_fresh: dict[Any, bool] = {}


def _layouts(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.storage_offset() or not value.is_meta:
            raise TypeError("no layout that decides a result's")
        return (value.size(), value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return (type(value), *(map(_layouts, value)))
    return (type(value), value)


def _shapes_of(result: Any, arguments: Sequence[Tensor]) -> Layout | tuple[Layout, ...] | None:
    """The layouts of a tensor or a tuple of tensors without gaps.

    None for another result, or one that shares memory with an argument: ``_unsafe_view``'s schema does not say so.
    """
    tensors = result if type(result) is tuple else (result,)
    taken = {argument.untyped_storage()._cdata for argument in arguments if argument.layout == torch.strided}
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.storage_offset():
            return None
        storage = tensor.untyped_storage()
        if storage._cdata in taken or storage.nbytes() != tensor.numel() * tensor.itemsize:
            return None
    if len({id(tensor) for tensor in tensors}) != len(tensors):
        return None
    layouts = tuple((tensor.size(), tensor.stride(), tensor.dtype) for tensor in tensors)
    return layouts if type(result) is tuple else layouts[0]


def _made(shapes: Any) -> Any:
    if isinstance(shapes[0], torch.Size):
        return torch.empty_strided(shapes[0], shapes[1], dtype=shapes[2], device="meta")
    return tuple(torch.empty_strided(size, stride, dtype=dtype, device="meta") for size, stride, dtype in shapes)


def _run_on_meta(function: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
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
    """With the CPU kernel's sizes, not CUDA's (aten/src/ATen/native/EmbeddingBag.cpp)."""
    output, bag_of_index, bag_sizes, largest = result
    mode = args[4] if len(args) > 4 else kwargs.get("mode", _SUM)
    padding = args[8] if len(args) > 8 else kwargs.get("padding_idx", -1)
    if mode != _MAX:
        largest = bag_sizes.new_empty(bag_sizes.size())
    if mode == _SUM and padding < 0 and output.dtype in (torch.float32, torch.float16):
        bag_of_index = bag_of_index.new_empty(0)
    else:
        count = len(bag_of_index)
        bag_of_index = bag_of_index.new_empty(count + 1)[:count]  # the kernel makes one more, and shortens it
    return output, bag_of_index, bag_sizes, largest


def on_meta(value: Any) -> Any:
    return map_tensors(value, lambda tensor: tensor if tensor.is_meta else tensor.to("meta"))


def zeros(shape: Tensor) -> Tensor:
    """Zeros on the CPU for a ``meta`` tensor; raise NumbersNeededError for a sparse one."""
    if shape.layout != torch.strided:
        raise NumbersNeededError(f"copying a tensor of layout {shape.layout} to the host")
    return torch.empty_strided(shape.size(), shape.stride(), dtype=shape.dtype).zero_()
