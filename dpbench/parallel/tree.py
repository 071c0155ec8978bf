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
from torch.nn.parameter import is_lazy

_STRIDED = torch.strided
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


class Tree:
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
        self._members = _members(modules)
        self._tables = _tables(modules)
        self._table_members = gc.get_referents(*self._tables)
        self._are_dicts = all(isinstance(table, dict) for table in self._tables)  # a ScriptModule's tell nothing
        self._layouts = None if self.is_lazy else _layouts(self.tensors)

    def is_current(self) -> bool:
        """Whether the base still has these very modules and tensors, with the same types and layouts."""
        return self.is_whole() and _layouts(self.tensors) == self._layouts

    def is_whole(self) -> bool:
        """Whether the base still has these very modules and tensors."""
        if self._layouts is None:
            return False  # uninitialized parameters become others unseen
        kinds, counts, names, things = _members(self.modules)
        old_kinds, old_counts, old_names, old_things = self._members
        return kinds == old_kinds and counts == old_counts and names == old_names and _are_same(things, old_things)

    def has_same_members(self) -> bool:
        """As `is_whole` for a sixth of the time, but blind to a module that has other tables than it had.

        Enough to check devices by, where nothing but an early and clear error depends on it.
        """
        return self._are_dicts and _are_same(gc.get_referents(*self._tables), self._table_members)


def _members(modules: Sequence[nn.Module]) -> tuple[list[type], list[int], list[str], list[Any]]:
    """Of each module its type, and how many members its tables have; of all members the names and the objects."""
    tables = _tables(modules)
    filled = list(filter(None, tables))
    names = [*chain.from_iterable([table.keys() for table in filled])]  # a ScriptModule's table cannot be iterated
    things = [*chain.from_iterable([table.values() for table in filled])]
    return list(map(type, modules)), list(map(len, tables)), names, things


def _tables(modules: Sequence[nn.Module]) -> list[Any]:
    return [*chain.from_iterable([map(kind, modules) for kind in _TABLES])]


def _are_same(things: Sequence[Any], old_things: Sequence[Any]) -> bool:
    """By identity, since == of tensors compares their values. The old ones live on, so that none has another's id."""
    return len(things) == len(old_things) and all(map(is_, things, old_things))


def _layouts(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [
        (t.shape, t.dtype, t.device, t.requires_grad, t.stride() if t.layout is _STRIDED else t.layout) for t in tensors
    ]


def _is_plain(kind: type[nn.Module]) -> bool:
    return (
        kind.__setattr__ is nn.Module.__setattr__
        and kind._replicate_for_data_parallel is nn.Module._replicate_for_data_parallel
        and not any(vars(each).get("__slots__") for each in kind.__mro__)  # state beside the ``__dict__``
    )


def _is_compiled(module: nn.Module) -> bool:
    # By way of sys.modules: importing dynamo takes seconds, and without it nothing is compiled.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)
