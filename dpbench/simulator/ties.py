"""Keeps tied weights tied when `Module.to` moves them to a simulated device.

torch moves a weight in place if the tensors of both devices are of compatible types. A simulated tensor is a Python
subclass, so `Module._apply` makes a new parameter for each place of the old one. Each further place then gets the
first place's parameter again.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor, nn

Table = dict[str, Any]
_active = threading.local()


def serve_modules() -> None:
    """Replace `Module._apply`."""
    nn.Module._apply = keeping_ties(nn.Module._apply)  # type: ignore[method-assign]


def keeping_ties(apply: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """`apply`, but a tensor with several places in the module has one new tensor for all of them."""

    @wraps(apply)
    def tied(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if getattr(_active, "is_inside", False):
            return apply(self, *args, **kwargs)
        shared = [places for places in _places(self).values() if len(places) > 1]
        _active.is_inside = True
        try:
            result = apply(self, *args, **kwargs)
        finally:
            _active.is_inside = False
        for (table, name), *others in shared:
            for other_table, other_name in others:
                other_table[other_name] = table[name]
        return result

    return tied


def _places(root: nn.Module) -> dict[int, list[tuple[Table, str]]]:
    found: dict[int, list[tuple[Table, str]]] = {}
    for module in root.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items() if type(table) is dict else ():
                if isinstance(tensor, Tensor):
                    found.setdefault(id(tensor), []).append((table, name))
    return found
