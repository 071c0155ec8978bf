"""Load the stand-in's operators after the import of torch, and the fake NVML after that of pynvml.

Copied into a virtual environment, whose Python runs it.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

OPERATORS = Path(__file__).parent / "nvidia/cu13/lib/libstand_in_operators.so"


def take_over(torch: ModuleType) -> None:
    """Replace torch's CUDA kernels, and turn off what needs kernels that only NVIDIA has."""
    import atexit
    import ctypes

    operators = ctypes.CDLL(str(OPERATORS), mode=ctypes.RTLD_GLOBAL)
    prefer_compiled_shapes(torch)
    torch.backends.cudnn.enabled = False
    torch.backends.mha.set_fastpath_enabled(False)
    for name in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
    torch.distributed.distributed_c10d._NCCL_AVAILABLE = False  # the stand-in's NCCL knows one process
    # The allocator exists once CUDA is initialised. To ask before whether there is a device would forbid forks.
    torch.cuda._lazy_call(operators.stand_in_follow_allocator)
    runtime = ctypes.CDLL("libcudart.so.13")
    atexit.register(runtime.stand_in_finish)


def prefer_compiled_shapes(torch: ModuleType) -> None:
    """Find shapes by torch's compiled kernels where it has them.

    torch puts kernels in Python over many of them, which take milliseconds, and raise other errors.
    """
    meta = torch._meta_registrations
    meta._meta_lib_dont_use_me_use_register_meta._destroy()
    library = torch.library.Library("aten", "IMPL", "Meta")
    meta._meta_lib_dont_use_me_use_register_meta = library
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    chosen = {}
    for kind in ("meta", "post_autograd", "pre_autograd"):  # the order of torch's own activate_meta
        for operator, kernel in meta.global_decomposition_table[kind].items():
            chosen.setdefault(operator, kernel)
    for operator, kernel in chosen.items():
        if not isinstance(operator, torch._ops.OpOverload) or not operator.name().startswith("aten::"):
            continue
        name = operator.name()
        if name.startswith("aten::_foreach"):  # composed of operators that have compiled kernels
            continue
        if operator.is_view or has_kernel(name, "Meta") or has_kernel(name, "CompositeImplicitAutograd"):
            continue
        if name not in ("aten::clone", "aten::_to_copy", "aten::copy_"):  # these would call themselves
            library.impl(operator, kernel)


def answer_nvml(pynvml: ModuleType) -> None:
    from tests.cuda_stand_in.nvml import answer_for

    answer_for(pynvml)


class After(importlib.abc.MetaPathFinder):
    """Finds modules by the other finders, and calls a function with each of them when its import is over."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        action = self._actions.pop(name, None)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if action else None
        if spec is None or spec.loader is None or action is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if OPERATORS.exists():
    sys.meta_path.insert(0, After({"torch": take_over, "pynvml": answer_nvml}))
