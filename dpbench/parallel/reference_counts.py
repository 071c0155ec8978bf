"""Which references to a lane's shells come from what a forward has left in the shells, and from nothing else::

    shell's __dict__ ── "act" ──> bound method ──> shell      goes with the __dict__: the shell is not in use
                                      ↑
    someone else ─────────────────────┘                       with this reference it is

Autotuner deletion, as by Python's own collector (devguide.python.org, "Garbage collector design"): a container belongs
to the shells if all that refers to it are their dicts, or containers that belong to them. Only containers of
well-known types, and modules that are no shells, are looked into; what any other object refers to counts as in use.
"""

import gc
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn

_CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict, set, frozenset, deque, MethodType, partial, CellType)
_REFERENTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys(_CONTAINERS, gc.get_referents),
    FunctionType: lambda function: (function.__closure__, function.__defaults__),  # not the whole of its module
}


def _referents_of(value: Any) -> Iterable[Any] | None:
    """What a container refers to; None for all that is not looked into."""
    kind = type(value)
    if kind in _REFERENTS:
        return _REFERENTS[kind](value)
    # By its type: a weak proxy of a module has the module's class, but owns nothing.
    return [value.__dict__] if issubclass(kind, nn.Module) and "_is_replica" not in value.__dict__ else None


def count_own_references(written: Iterable[Any]) -> Counter[int]:
    """How often objects, by id, are referred to by the values `written`, and by containers that are theirs alone.

    The values are those in the shells' dicts; one that stands in two of them comes twice.
    """
    links = Counter[int]()
    found: dict[int, Any] = {0: [], **_reach(written, links)}
    counts = list(map(sys.getrefcount, found.values()))
    # The list has what all of them have for being here. More than that and than the links: someone else's.
    foreign = [
        value for value, count in zip(found.values(), counts, strict=True) if count > counts[0] + links[id(value)]
    ]
    while foreign:
        value = foreign.pop()
        if found.pop(id(value), None) is not None:
            for referent in _referents_of(value) or ():
                links[id(referent)] -= 1
                if id(referent) in found:
                    foreign.append(referent)
    return links


def _reach(written: Iterable[Any], links: Counter[int]) -> dict[int, Any]:
    """The containers among the values and in each other; counts in `links` the references on the way."""
    found: dict[int, Any] = {}
    ahead: list[Iterable[Any]] = [written]
    while ahead:
        for value in ahead.pop():
            links[id(value)] += 1
            if id(value) not in found and (referents := _referents_of(value)) is not None:
                found[id(value)] = value
                ahead.append(referents)
    return found
