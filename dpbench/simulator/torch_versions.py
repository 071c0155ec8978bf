"""All that depends on torch's version: those that were tested, and how they differ."""

import re
from collections.abc import Callable
from typing import Any

import torch

TESTED = ("2.13", "2.14")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def why_unsupported(version: str) -> str | None:
    """One line that says why the simulator does not run with this torch, or None."""
    if _release(version) in map(_release, TESTED):
        return None
    tested, newest = ", ".join(TESTED), TESTED[-1]
    return (
        f"the simulator was tested with torch {tested}; this is {version}; allowed: one of these, such as "
        f"`pip install torch=={newest}.*`. CONTRIBUTING.md says how to add a version"
    )


def _release(version: str) -> tuple[int, ...]:
    found = _RELEASE.match(version)
    return tuple(map(int, found.groups())) if found else ()


def function_apply() -> Callable[..., Any]:
    """Torch's own ``Function.apply``, called with the class, then the arguments.

    It is a ``classmethod`` in torch 2.13, and a class method of C since 2.14, which has no ``__func__``. Both bind to a
    class by ``__get__``.
    """
    method = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    return apply
