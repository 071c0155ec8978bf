"""Benchmarks of data parallelism in PyTorch, and a faster `torch.nn.DataParallel`.

``import dpbench`` does not import torch. The wrapper's names import it on first use.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "DataParallel",
    "Policy",
    "__version__",
    "chunk_weights",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
    "scatter_kwargs",
    "variant",
    "with_loss",
]


def __getattr__(name: str) -> Any:
    if name == "variant":
        return import_module("dpbench.variants.own").variant
    if name in __all__:
        return getattr(import_module("dpbench.parallel"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
