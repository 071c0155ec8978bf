"""All that depends on torch's version."""

import re
from collections.abc import Callable
from typing import Any

import torch

TESTED = ("2.13", "2.14")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def why_unsupported(version: str) -> str | None:
    if _release(version) in map(_release, TESTED):
        return None
    tested, newest = ", ".join(TESTED), TESTED[-1]
    return (
        f"the simulator was tested with torch {tested}; this is {version}; allowed: one of these, such as "
        f"`pip install torch=={newest}.*`. CONTRIBUTING.md says how to add a version"
    )


def _release(version: str) -> tuple[int, ...]:
    match = _RELEASE.match(version)
    return tuple(map(int, match.groups())) if match else ()


def function_apply() -> Callable[..., Any]:
    """A ``classmethod`` in torch 2.13, and a class method of C since 2.14, which has no ``__func__``."""
    method = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    return apply
