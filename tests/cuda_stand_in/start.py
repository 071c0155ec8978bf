"""Load the stand-in's operators as soon as torch has been imported. Copied into ``.venv-cuda``, whose Python runs it."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

OPERATORS = Path(__file__).parent / "nvidia/cu13/lib/libstand_in_operators.so"


def take_over(torch: ModuleType) -> None:
    """Replace torch's CUDA kernels, and turn off what needs kernels that only NVIDIA has."""
    import atexit
    import ctypes

    operators = ctypes.CDLL(str(OPERATORS), mode=ctypes.RTLD_GLOBAL)
    torch.backends.cudnn.enabled = False
    torch.backends.mha.set_fastpath_enabled(False)
    for name in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
    if torch.cuda.is_available():
        queued = torch.cuda._lazy_call
        queued(operators.stand_in_follow_allocator)  # the allocator exists once CUDA is initialised
    runtime = ctypes.CDLL("libcudart.so.13")
    atexit.register(runtime.stand_in_finish)


class AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch by the other finders, and calls `take_over` when its import is over."""

    def __init__(self) -> None:
        self._spec: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch" or self._spec is not None:
            return None
        self._spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if self._spec is None or self._spec.loader is None:
            return None
        loader = self._spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            take_over(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return self._spec


if OPERATORS.exists():
    sys.meta_path.insert(0, AfterTorch())
