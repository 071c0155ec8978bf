"""What the base is made of: its modules and tensors, read once, and whether that still holds."""

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
"""Names with an index into the tree's modules or tensors; None where the base has None."""


@dataclass(frozen=True, slots=True)
class Node:
    """One module of the base.

    `is_plain` tells that copying its ``__dict__`` is all that replication means for it; `is_compiled` that it is
    what ``torch.compile(module)`` made, which writes through to the module it wraps.
    """

    module: nn.Module
    children: Slots
    parameters: Slots
    buffers: Slots
    is_plain: bool
    is_compiled: bool


_PLAIN_WAYS = (nn.Module._replicate_for_data_parallel, GraphModule._replicate_for_data_parallel)
"""A graph module's is to compile its graph anew, and leaves cycles; the code is its class's, so that a shell has it."""


class ModuleTree:
    """A snapshot of which modules and tensors the base has, never of their values."""

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
        """Whether the base still has these very modules and tensors, with the same types and layouts."""
        return (
            self.is_whole()
            and list(map(_LAYOUT, self.tensors)) == self._layouts
            and list(map(Tensor.stride, self._strided)) == self._strides
        )

    def is_whole(self) -> bool:
        """Whether the base still has these very modules and tensors, by the same names."""
        return (
            self.has_same_members()
            and list(map(type, self.modules)) == self._kinds
            and _are_same(_tables(self.modules), self._tables)
            and list(map(len, self._tables)) == self._counts
            and self._names_now() == self._names
        )

    def has_same_members(self) -> bool:
        """As `is_whole` for a fraction of the time, but blind to new names, and to a module that has other tables.

        Enough to check devices by, where nothing but an early and clear error depends on it.
        """
        # Of lazy modules none tells: uninitialized parameters become others unseen.
        return not self.is_lazy and _are_same(self._members_now(), self._members)

    def _members_now(self) -> list[Any]:
        # A dict with names for keys tells the collector of its values alone: the fastest way to all of them.
        members = gc.get_referents(*self._plain_tables)
        members += chain.from_iterable([table.values() for table in self._script_tables])
        return members

    def _names_now(self) -> list[str]:
        return [*chain.from_iterable(self._plain_tables)]  # those of a ScriptModule are compiled in


def _tables(modules: Sequence[nn.Module]) -> list[Any]:
    return [*chain.from_iterable([map(kind, modules) for kind in _TABLES])]


def _are_same(things: Sequence[Any], old_things: Sequence[Any]) -> bool:
    """By identity, since == of tensors compares their values. The old ones live on, so that none has another's id."""
    return len(things) == len(old_things) and all(map(is_, things, old_things))


def _is_plain(kind: type[nn.Module]) -> bool:
    return (
        kind.__setattr__ is nn.Module.__setattr__
        and kind._replicate_for_data_parallel in _PLAIN_WAYS
        and kind.__basicsize__ == nn.Module.__basicsize__  # else state beside the ``__dict__``: slots, a dict's items
    )


def _is_compiled(module: nn.Module) -> bool:
    # By way of sys.modules: importing dynamo takes seconds, and without it nothing is compiled.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)
