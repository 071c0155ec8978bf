"""All that the simulator knows about single versions of torch: those it was tested with, and how they differ."""

from collections.abc import Callable
from typing import Any

import torch

TESTED = ("2.13", "2.14")


def is_tested(version: str) -> bool:
    """Return whether the simulator was tested with this version of torch."""
    return ".".join(version.split(".")[:2]) in TESTED


def function_apply() -> Callable[..., Any]:
    """Return torch's own ``Function.apply``, called with the class, then the arguments.

    It is a ``classmethod`` in torch 2.13, and a class method of C since 2.14, which has no ``__func__``. Both bind to a
    class by ``__get__``.
    """
    method = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    return apply
