"""Facts about an operator, read once from its schema."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from dpbench.simulator.unsupported import UnsupportedError

aten = torch.ops.aten

_OVERWRITES = tuple(
    f"aten::{name}_"
    for name in ("copy", "_foreach_copy", "fill", "zero", "_foreach_zero", "normal", "uniform", "bernoulli")
)
_EMPTY = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::empty_permuted")
_NEW_EMPTY = ("aten::new_empty", "aten::new_empty_strided")
_ANSWERS_HOST = (
    "aten::equal",
    "aten::masked_select",
    "aten::nonzero",
    "aten::unique_dim",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_consecutive",
)
_CPU_INDICES = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
_LIKE = ("_like", "new_")
_GROUPS = 9  # where aten::convolution_backward has the number of groups
_UNSUPPORTED = {
    "aten::set_": "setting a tensor's storage",
    "aten::_pin_memory": "pinned memory",
}


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """`written` are positions or names of arguments, and `overwrites` is true if it does not read them. `is_empty`
    marks an allocation without a kernel, `makes_like` a factory that takes only the shape of its argument.
    `decomposes` is true if torch has no CPU kernel for it, but a decomposition.
    """

    name: str
    written: tuple[int | str, ...]
    may_write: bool
    overwrites: bool
    is_empty: bool
    makes_like: bool
    takes_device: bool
    takes_generator: bool
    takes_cpu_indices: bool
    answers_host: bool
    changes_view: bool
    decomposes: bool


@cache
def facts(func: Any) -> OperatorFacts:
    """Raise UnsupportedError."""
    schema = func._schema
    if schema.name in _UNSUPPORTED:
        raise UnsupportedError(f"the simulator does not support {schema.name}: {_UNSUPPORTED[schema.name]}")
    arguments = list(enumerate(schema.arguments))
    written = [(i, a) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write]
    names = {a.name for _, a in arguments}
    return OperatorFacts(
        name=str(func),
        written=tuple(a.name if a.kwarg_only else i for i, a in written),
        may_write=bool(written) or func is aten.native_batch_norm.default,
        overwrites=schema.name in _OVERWRITES or any(a.kwarg_only for _, a in written),
        is_empty=schema.name in (*_EMPTY, *_NEW_EMPTY),
        makes_like=any(part in schema.name for part in _LIKE),
        takes_device="device" in names,
        takes_generator="generator" in names,
        takes_cpu_indices=schema.name in _CPU_INDICES,
        answers_host=schema.name in _ANSWERS_HOST,
        changes_view=torch.Tag.inplace_view in func.tags,
        decomposes=_decomposes(func),
    )


def _decomposes(func: Any) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "CPU")


def written_arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    of_operator = facts(func)
    written = [kwargs.get(at) if isinstance(at, str) else args[at] for at in of_operator.written if _has(at, args)]
    if func is aten.native_batch_norm.default and args[5]:
        written += [args[3], args[4]]  # the running statistics, which the schema does not mark as written
    return written


def answers_host(func: Any, args: Any) -> bool:
    """Whether the result, or a mask used as an index, decides a size, so that the host waits."""
    of_operator = facts(func)
    masks = args[1] if of_operator.takes_cpu_indices else ()
    return of_operator.answers_host or any(
        mask is not None and mask.dtype in (torch.bool, torch.uint8) for mask in masks
    )


def decides_size(func: Any, args: Any) -> bool:
    """Whether the numbers decide a size of the result, or an answer of the host."""
    return answers_host(func, args) and func is not aten.index_put_.default and "index_put" not in facts(func).name


def _has(at: int | str, args: Any) -> bool:
    return isinstance(at, str) or at < len(args)


def flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Floating-point operations by torch's formulas; 0 for all but matrix products, convolutions and attention."""
    formula = flop_registry.get(func._overloadpacket)
    if not formula:
        return 0
    if func is aten.convolution_backward.default and args[_GROUPS] > 1:
        return _grouped_backward_flops(formula, args, result)
    return int(formula(*args, **kwargs, out_val=result))


def _grouped_backward_flops(formula: Any, args: Any, result: Any) -> int:
    """Torch's formula has the weight's gradient as if each output channel read all input channels (torch 2.13)."""
    *arguments, groups, (needs_input, needs_weight, _) = args
    of_input = formula(*arguments, groups, [needs_input, False, False], out_val=result)
    of_weight = formula(*arguments, groups, [False, needs_weight, False], out_val=result)
    return int(of_input + of_weight // groups)
