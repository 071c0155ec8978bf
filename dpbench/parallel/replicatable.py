"""Checks of the base: modules and tensors that cannot be replicated, or only in part."""

import warnings
from collections.abc import Sequence
from operator import attrgetter, countOf

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dpbench.parallel.devices import CPU
from dpbench.parallel.module_tree import ModuleTree

_DEVICE, _IS_CPU = attrgetter("device"), attrgetter("is_cpu")


def are_on(device: torch.device, tensors: Sequence[Tensor]) -> bool:
    """Whether all tensors are on `device`."""
    if device == CPU:
        return all(map(_IS_CPU, tensors))  # makes no device objects, which halves the time
    return countOf(map(_DEVICE, tensors), device) == len(tensors)


def check_device(tensors: Sequence[Tensor], device: torch.device) -> None:
    """Raise RuntimeError, with the stock text, unless all tensors are on `device`."""
    if not are_on(device, tensors):
        stray = next(tensor.device for tensor in tensors if tensor.device != device)
        raise RuntimeError(
            "module must have its parameters and buffers "
            f"on device {device} (device_ids[0]) but found one of "
            f"them on device: {stray}"
        )


def check_replicatable(tree: ModuleTree) -> None:
    """Raise RuntimeError for lazy modules and for Python modules under a ScriptModule.

    The texts are stock's. Warn of compiled modules.
    """
    _warn_of_compiled(tree)
    if tree.is_lazy:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. "
            "Run a dummy forward pass to correctly initialize the modules"
        )
    for module in tree.modules:
        if isinstance(module, torch.jit.ScriptModule) and not all(
            isinstance(child, torch.jit.ScriptModule) for child in module.modules()
        ):
            raise RuntimeError("Cannot replicate network where python modules are children of ScriptModule")


def check_not_transformed(tensors: Sequence[Tensor]) -> None:
    """Raise NotImplementedError for tensors with tangents or under ``torch.func``.

    Only plain values are sent, so derivatives would silently lack the other lanes' share. Inputs may be both.
    """
    has_transforms = torch._C._are_functorch_transforms_active()
    if not has_transforms and forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if (
            torch._C._functorch.is_functorch_wrapped_tensor(tensor)
            or forward_ad.unpack_dual(tensor).tangent is not None
        ):
            raise NotImplementedError(
                "the parameters and buffers of `DataParallel` cannot be differentiated or mapped over by torch.func, "
                "nor have tangents; its inputs can. Use the bare module, or take gradients by autograd"
            )


def _warn_of_compiled(tree: ModuleTree) -> None:
    if any(node.is_compiled or node.module._compiled_call_impl is not None for node in tree.nodes):
        warnings.warn(
            "the replicas of a compiled module run it eagerly: compiled code is bound to one module, and "
            "torch.compile is not thread-safe. Compile functions that the module calls instead, or use "
            "DistributedDataParallel",
            stacklevel=2,
        )
