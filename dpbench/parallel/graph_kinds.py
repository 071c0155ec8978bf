"""What a graph depends on besides its inputs, and why a step stays eager."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.modules import module as module_hooks
from torch.nn.utils import parametrize

from dpbench.parallel.layout import fits_flat
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.thread_state import setting_values

Key = tuple[Any, ...]
_TRAINING = attrgetter("training")
_HOOKS = attrgetter("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


def is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def leaf_key(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    return type(value), value


_PRECISION = torch._C._get_fp32_precision_getter
_SETTINGS: tuple[Callable[[], Any], ...] = (
    partial(_PRECISION, "cuda", "matmul"),
    partial(_PRECISION, "cuda", "conv"),
    partial(_PRECISION, "cuda", "rnn"),
    torch._C._get_deterministic_algorithms,
    torch._C._get_cudnn_enabled,
    torch._C._get_cudnn_benchmark,
    torch._C._get_cudnn_deterministic,
    torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
    torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
    torch._C._get_cublas_allow_fp16_accumulation,
    torch._C._get_blas_preferred_backend,
    torch._C._get_linalg_preferred_backend,
)
"""Settings by which libraries choose kernels. `fp32_precision` shows those of the older ``allow_tf32`` too."""


def modes_of(tree: ModuleTree) -> Key:
    return (
        *[setting() for setting in _SETTINGS],
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        setting_values(),
        tuple(map(_TRAINING, tree.modules)),
    )


def why_never(tree: ModuleTree) -> str | None:
    for node in tree.nodes:
        kind = type(node.module).__name__
        if not node.is_plain:
            return f"{kind} is a custom module"
        for name, value in node.module.__dict__.items():
            if isinstance(value, Tensor) and (value.requires_grad or not fits_flat(value)):
                return f"{kind}.{name} is neither a parameter nor a buffer, and no plain constant"
    if not all(map(fits_flat, tree.tensors)):
        return "a parameter or buffer fits into no flat, so its memory on the lanes changes"
    return None


def why_not_now(tree: ModuleTree) -> str | None:
    """Why this step must run eagerly, by the state of the base and of torch; None if it need not."""
    has_saved_hooks = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    reasons = {
        "a module has hooks": any(map(any, map(_HOOKS, tree.modules))),
        "all modules have hooks": any(getattr(module_hooks, name) for name in _GLOBAL_HOOKS),
        "a transform is active": torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0,
        "a mode or hook sees each operator": torch._C._len_torch_dispatch_stack() or has_saved_hooks,
        "parametrizations are cached": parametrize._cache_enabled,
        "anomaly detection is on": torch.is_anomaly_enabled(),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
