"""Benchmarks of data parallelism in PyTorch, and a faster `torch.nn.DataParallel`.

``import dpbench`` does not import torch. Its names import their modules on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "DataParallel",
    "Policy",
    "__version__",
    "chunk_weights",
    "compare",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
    "scatter_kwargs",
    "variant",
    "with_loss",
]

_HOMES = {"compare": "dpbench.in_python", "variant": "dpbench.variants.registry"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "dpbench.parallel")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
