"""All that the simulator knows about single versions of torch: those it was tested with, and how they differ."""

import re
from collections.abc import Callable
from typing import Any

import torch

from dpbench.simulator.trial import fault_with

TESTED = ("2.13", "2.14")


_RELEASE = re.compile(r"(\d+)\.(\d+)")


def why_unsupported(version: str) -> str | None:
    """Return one line that says why the simulator does not run with this torch, None if it does.

    A version that is newer than the tested ones is tried in a child process. That takes a few seconds, once.
    """
    if _release(version) in map(_release, TESTED):
        return None
    tested = f"the simulator was tested with torch {', '.join(TESTED)}; this is {version}"
    if _release(version) < _release(TESTED[0]):
        return f"{tested}, which is older"
    fault = fault_with(version)
    return f"{tested}, and its self-check failed: {fault}" if fault else None


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    found = _RELEASE.match(version)
    return tuple(map(int, found.groups())) if found else ()


def function_apply() -> Callable[..., Any]:
    """Return torch's own ``Function.apply``, called with the class, then the arguments.

    It is a ``classmethod`` in torch 2.13, and a class method of C since 2.14, which has no ``__func__``. Both bind to a
    class by ``__get__``.
    """
    method = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    return apply
