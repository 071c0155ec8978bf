"""Reference counts that decide whether shells, dicts and memory may be used again.

A count taken now is compared with a count taken when nothing else could refer to the object. The invariants:

1. The counts must be exact. They are with the GIL only, so nothing is cached without it.
2. Both counts of a comparison are taken by the same function, so that its own temporary references cancel out.
3. An empty shell is idle if its count is the count of its construction.
4. A filled shell is idle if its count is higher by the references from its parents' tables (`count_links`).
   If a forward has changed the tables or left references in attributes, `count_own_references` counts those instead.
5. A custom module is idle if its count is the count after the refresh.
6. A set of replicas is idle if all of its shells and custom modules are.
7. Counts and containers cannot be read at one instant, and another thread may be running the shells.
   So the counts are taken before and after the containers, and must agree.
8. A shell's dict is cleared and used again if its count is the count of its construction. Otherwise it is replaced.
9. A bucket's memory is written again if its storage is used by the lane's own tensors only (`count_storage_uses`).

A reference from a container that only the shells refer to is the shells' own reference (4)::

    shell's __dict__ ── "act" ──> bound method ──> shell      only the __dict__ refers to the method: the shell is idle
                                      ↑
    any other object ─────────────────┘                       with this reference the shell is in use

This is trial deletion, as Python's own collector does it (devguide.python.org, "Garbage collector design").
"""

import gc
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.parallel.module_tree import Node

COUNTS_ARE_EXACT: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Without a GIL the counts of shared objects are split and deferred (PEP 703)."""

_CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict, set, frozenset, deque, MethodType, partial, CellType)
_REFERENTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys(_CONTAINERS, gc.get_referents),
    FunctionType: lambda function: (function.__closure__, function.__defaults__),  # without its module's globals
}


def count_references(things: Sequence[Any]) -> list[int]:
    return list(map(sys.getrefcount, things))


def count_links(nodes: Sequence[Node]) -> Counter[int]:
    """References to each filled shell, by its index, from its parents' tables.

    A compiled module refers to its child once more, in the place of its forward.
    """
    children = [i for node in nodes for _, i in node.children * (1 + (node.compiled is not None)) if i is not None]
    return Counter(i for i in children if nodes[i].is_plain)


def count_own_references(written: Iterable[Any]) -> Counter[int]:
    """References to each object, by its id, from `written` and from containers that nothing else refers to.

    A value that is in two of the shells' dicts comes twice in `written`.
    """
    links = Counter[int]()
    containers: dict[int, Any] = {0: [], **_reach(written, links)}
    counts = list(map(sys.getrefcount, containers.values()))
    # The list at 0 has only the references that each container has here. Whatever exceeds these and the links is the
    # reference of another object.
    foreign = [
        value for value, count in zip(containers.values(), counts, strict=True) if count > counts[0] + links[id(value)]
    ]
    while foreign:
        value = foreign.pop()
        if containers.pop(id(value), None) is not None:
            for referent in _referents_of(value) or ():
                links[id(referent)] -= 1
                if id(referent) in containers:
                    foreign.append(referent)
    return links


def count_storage_uses(tensor: Tensor) -> int:
    return _storage_counter(tensor.device.type)(tensor)


def _reach(written: Iterable[Any], links: Counter[int]) -> dict[int, Any]:
    """The containers that `written` leads to, by id; adds the references on the way to `links`."""
    containers: dict[int, Any] = {}
    ahead: list[Iterable[Any]] = [written]
    while ahead:
        for value in ahead.pop():
            links[id(value)] += 1
            if id(value) not in containers and (referents := _referents_of(value)) is not None:
                containers[id(value)] = value
                ahead.append(referents)
    return containers


def _referents_of(value: Any) -> Iterable[Any] | None:
    """None if `value` is not looked into."""
    kind = type(value)
    if kind in _REFERENTS:
        return _REFERENTS[kind](value)
    # `kind`, not `isinstance`: a weak proxy of a module has the module's class, but owns nothing.
    return [value.__dict__] if issubclass(kind, nn.Module) and "_is_replica" not in value.__dict__ else None


@cache
def _storage_counter(device_type: str) -> Callable[[Tensor], int]:
    """The device module's own counter, for a backend without torch's; else `_storage_uses`."""
    return getattr(torch.get_device_module(device_type), "storage_use_count", _storage_uses)


def _storage_uses(tensor: Tensor) -> int:
    storage = tensor.untyped_storage()  # the same Python object for each caller that keeps it
    return torch._C._storage_Use_Count(storage._cdata) + sys.getrefcount(storage)
