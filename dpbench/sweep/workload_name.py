"""Workload names: ``family/size``, or a user's ``package.module:factory``."""

from dpbench.sweep.explain import nearest, one_of
from dpbench.sweep.names import Family, Size

_ALLOWED = f"family/size with a family of {one_of(Family)} and a size of {one_of(Size)}, or package.module:factory"


def is_factory(workload: str) -> bool:
    return ":" in workload


def parse_workload(text: str) -> str:
    """The name as it stands, its shape checked; whether a factory loads is for the probe child to say.

    Raises ValueError, naming what is allowed.
    """
    if is_factory(text):
        module, _, factory = text.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), factory)):
            raise ValueError(f"{text!r} is no workload; allowed: {_ALLOWED}")
        return text
    family, _, size = text.partition("/")
    if family not in list(Family):
        raise ValueError(f"{text!r} is no workload{nearest(family, Family)}; allowed: {_ALLOWED}")
    if size not in list(Size):
        raise ValueError(f"{text!r} has no known size{nearest(size, Size)}; allowed: {_ALLOWED}")
    return text
