"""The base's modules and tensors, read once, and the check that they are still the same."""

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy

_LAYOUT = attrgetter("shape", "dtype", "device", "requires_grad", "layout")
_TABLES = tuple(map(attrgetter, ("_modules", "_parameters", "_buffers")))
Slots = tuple[tuple[str, int | None], ...]
"""Names with indices into the tree's modules or tensors; None if the base has None there."""


@dataclass(frozen=True, slots=True)
class Node:
    """One module of the base.

    `is_plain`: a copy of its ``__dict__`` replicates it. `is_compiled`: ``torch.compile(module)`` made it, and writes
    to it go through to the module that it wraps. A module that is not plain is called custom.
    """

    module: nn.Module
    children: Slots
    parameters: Slots
    buffers: Slots
    is_plain: bool
    is_compiled: bool


_PLAIN_WAYS = (nn.Module._replicate_for_data_parallel, GraphModule._replicate_for_data_parallel)
"""Replications that a shell replaces.

A graph module's would compile its graph again and leave cycles. A shell gets the compiled code from the class.
"""


class ModuleTree:
    """A snapshot of which modules and tensors the base has, without the tensors' values."""

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        modules = list(root.modules())
        module_index = {id(module): i for i, module in enumerate(modules)}
        tensor_index: dict[int, int] = {}
        self.tensors: list[Tensor] = []

        def tensor_slots(table: Mapping[str, Tensor | None]) -> Slots:
            for tensor in table.values():
                if tensor is not None and id(tensor) not in tensor_index:
                    tensor_index[id(tensor)] = len(self.tensors)
                    self.tensors.append(tensor)
            return tuple((name, None if t is None else tensor_index[id(t)]) for name, t in table.items())

        self.nodes = [
            Node(
                module,
                tuple((name, None if c is None else module_index[id(c)]) for name, c in module._modules.items()),
                tensor_slots(module._parameters),
                tensor_slots(module._buffers),
                _is_plain(type(module)) or _is_compiled(module),
                _is_compiled(module),
            )
            for module in modules
        ]
        self.modules = modules
        self.buffer_indices = {i for node in self.nodes for _, i in node.buffers if i is not None}
        self.is_lazy = any(is_lazy(tensor) for tensor in self.tensors)
        self._kinds = list(map(type, modules))
        self._tables = _tables(modules)
        self._plain_tables = [table for table in self._tables if isinstance(table, dict)]
        self._script_tables = [table for table in self._tables if not isinstance(table, dict)]
        self._counts = list(map(len, self._tables))
        self._names = self._names_now()
        self._members = self._members_now()
        self._layouts = [] if self.is_lazy else list(map(_LAYOUT, self.tensors))
        self._strided = [tensor for tensor in self.tensors if tensor.layout is torch.strided]
        self._strides = [] if self.is_lazy else list(map(Tensor.stride, self._strided))

    def is_current(self) -> bool:
        """Whether the base still has these modules and tensors, with the same types and layouts."""
        return (
            self.is_whole()
            and list(map(_LAYOUT, self.tensors)) == self._layouts
            and list(map(Tensor.stride, self._strided)) == self._strides
        )

    def is_whole(self) -> bool:
        """Whether the base still has the same module and tensor objects under the same names."""
        return (
            self.has_same_members()
            and list(map(type, self.modules)) == self._kinds
            and _are_same(_tables(self.modules), self._tables)
            and list(map(len, self._tables)) == self._counts
            and self._names_now() == self._names
        )

    def has_same_members(self) -> bool:
        """Like `is_whole` in a fraction of the time, but some changes are not seen.

        It does not see new names, or a module's new tables. This is enough for the check of devices: only an early and
        clear error depends on it.
        """
        # Never for lazy modules: their uninitialized parameters change their class in place, which is not seen here.
        return not self.is_lazy and _are_same(self._members_now(), self._members)

    def _members_now(self) -> list[Any]:
        # A dict whose keys are strings reports only its values to the garbage collector: the fastest way to all values.
        members = gc.get_referents(*self._plain_tables)
        members += chain.from_iterable([table.values() for table in self._script_tables])
        return members

    def _names_now(self) -> list[str]:
        return [*chain.from_iterable(self._plain_tables)]  # the names in a ScriptModule cannot change


def _tables(modules: Sequence[nn.Module]) -> list[Any]:
    return [*chain.from_iterable([map(kind, modules) for kind in _TABLES])]


def _are_same(things: Sequence[Any], old_things: Sequence[Any]) -> bool:
    """Whether both hold the same objects, compared by `is`: == of tensors compares values.

    The old objects are alive, so no new one has their id.
    """
    return len(things) == len(old_things) and all(map(is_, things, old_things))


def _is_plain(kind: type[nn.Module]) -> bool:
    return (
        kind.__setattr__ is nn.Module.__setattr__
        and kind._replicate_for_data_parallel in _PLAIN_WAYS
        # A larger size means state beside ``__dict__``: slots, or a dict's items.
        and kind.__basicsize__ == nn.Module.__basicsize__
    )


def _is_compiled(module: nn.Module) -> bool:
    # From sys.modules: importing dynamo takes seconds, and no module is compiled without it.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)
