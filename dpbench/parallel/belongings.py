"""Which references to a lane's shells come from what a forward has left in the shells, and from nothing else::

    shell's __dict__ ── "act" ──> bound method ──> shell      goes with the __dict__: the shell is not in use
                                      ↑
    someone else ─────────────────────┘                       with this reference it is

Trial deletion, as by Python's own collector (devguide.python.org, "Garbage collector design"): a container belongs
to the shells if all that refers to it are their dicts, or containers that belong to them. Only containers of
well-known types are looked into; what any other object refers to counts as in use.
"""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

_REFERENTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys((list, tuple, dict, set, frozenset, MethodType, partial, CellType), gc.get_referents),
    FunctionType: lambda function: (function.__closure__, function.__defaults__),  # not the whole of its module
}


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
            for referent in _REFERENTS[type(value)](value):
                links[id(referent)] -= 1
                if id(referent) in found:
                    foreign.append(referent)
    return links


def _reach(written: Iterable[Any], links: Counter[int]) -> dict[int, Any]:
    """The containers among the values and in each other; counts in `links` the references on the way."""
    found: dict[int, Any] = {}
    ahead: list[Any] = []

    def look_at(values: Iterable[Any]) -> None:
        for value in values:
            links[id(value)] += 1
            if type(value) in _REFERENTS and id(value) not in found:
                found[id(value)] = value
                ahead.append(value)

    look_at(written)
    while ahead:
        container = ahead.pop()
        look_at(_REFERENTS[type(container)](container))
    return found
