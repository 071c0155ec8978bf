"""Judge, and speed up, data parallelism in PyTorch.

``import dpbench`` costs nothing: the wrapper's names are looked up, and torch imported, on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PARALLEL = (
    "DataParallel",
    "Policy",
    "chunk_weights",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
    "scatter_kwargs",
)
__all__ = ["__version__", *_PARALLEL]


def __getattr__(name: str) -> Any:
    if name in _PARALLEL:
        return getattr(import_module("dpbench.parallel"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
