"""The caller's thread-local state, set in the lanes' threads, and the state that all threads share.

A replica's forward behaves as if it ran in the caller's thread, and changes nothing in the thread that runs it.

DIFFERENCES.md says what goes wrong if replicas on threads use shared state.
"""

import contextvars
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, overrides
from torch.backends import cuda
from torch.nn.utils import parametrize
from torch.utils import _python_dispatch

from dpbench.parallel.devices import CPU

T = TypeVar("T")

_AUTOCAST_TYPES = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "privateuseone")

_DENORMAL = 5e-324
"""Zero in a thread that flushes denormals: torch can set this flag, but has no function to read it."""


class ThreadState(NamedTuple):
    inference: bool
    grad: bool
    forward_grad: bool
    multithreading: bool
    autocast: tuple[bool, ...]
    autocast_dtypes: tuple[torch.dtype, ...]
    autocast_cache: bool
    has_saved_tensor_hooks: bool
    dispatch_modes: tuple[Any, ...]
    has_transforms: bool
    function_modes: tuple[Any, ...]
    intra_op_threads: int
    flushes_denormals: bool

    @classmethod
    def of_this_thread(cls) -> "ThreadState":
        return cls(
            inference=torch.is_inference_mode_enabled(),
            grad=torch.is_grad_enabled(),
            forward_grad=torch._C._is_fwd_grad_enabled(),
            multithreading=torch._C._is_multithreading_enabled(),
            autocast=tuple(map(torch.is_autocast_enabled, _AUTOCAST_TYPES)),
            autocast_dtypes=tuple(map(torch.get_autocast_dtype, _AUTOCAST_TYPES)),
            autocast_cache=torch.is_autocast_cache_enabled(),
            has_saved_tensor_hooks=torch._C._autograd._top_saved_tensors_default_hooks(False) is not None,
            dispatch_modes=tuple(map(torch._C._get_dispatch_stack_at, range(torch._C._len_torch_dispatch_stack()))),
            has_transforms=torch._C._are_functorch_transforms_active(),
            function_modes=tuple(overrides._get_current_function_mode_stack()),
            intra_op_threads=torch.get_num_threads(),
            flushes_denormals=_DENORMAL == 0,
        )

    @property
    def is_watched(self) -> bool:
        """Whether saved-tensor hooks, dispatch modes or ``torch.func`` transforms require all replicas in this thread.

        A checkpoint around the wrapper identifies saved tensors by their number alone. Lanes that run at the same time
        would get each other's. torch's stream sanitizer is a dispatch mode that follows the lanes to their threads.
        """
        modes = self.dispatch_modes
        return self.has_saved_tensor_hooks or self.has_transforms or bool(modes and not all(map(_is_sanitizer, modes)))

    def set_flags(self) -> None:
        torch._C._set_grad_enabled(self.grad)
        torch._C._set_fwd_grad_enabled(self.forward_grad)
        torch._C._set_multithreading_enabled(self.multithreading)
        # `map`, because this runs once per lane and step, and a loop takes twice as long.
        tuple(map(torch.set_autocast_enabled, _AUTOCAST_TYPES, self.autocast))
        tuple(map(torch.set_autocast_dtype, _AUTOCAST_TYPES, self.autocast_dtypes))
        torch.set_autocast_cache_enabled(self.autocast_cache)

    def run_here(self, call: Callable[[], T]) -> T:
        """Call `call` in the state's own thread, and undo what it sets."""
        try:
            return contextvars.copy_context().run(call)
        finally:
            self.set_flags()

    def run_elsewhere(self, call: Callable[[], T]) -> T:
        """Call `call` in another thread. The caller brings the context variables."""
        if torch.get_num_threads() != self.intra_op_threads:
            torch.set_num_threads(self.intra_op_threads)
        if (_DENORMAL == 0) != self.flushes_denormals:
            torch.set_flush_denormal(self.flushes_denormals)
        with torch.inference_mode(self.inference), self._modes():
            self.set_flags()
            return call()

    @contextmanager
    def _modes(self) -> Iterator[None]:
        for mode in self.function_modes:
            overrides._push_mode(mode)
        for mode in self.dispatch_modes:
            _python_dispatch._push_mode(mode)
        try:
            yield
        finally:
            for _ in self.dispatch_modes:
                _python_dispatch._pop_mode()
            for _ in self.function_modes:
                overrides._pop_mode()


def _is_sanitizer(mode: Any) -> bool:
    """Whether a dispatch mode is torch's stream sanitizer, which imports its module when it starts."""
    module = sys.modules.get("torch.cuda._sanitizer")
    return module is not None and isinstance(mode, module.CUDASanitizerDispatchMode)


FORWARD_AD = "torch._decomp.decompositions_for_jvp"
"""In ``sys.modules`` once forward-mode AD has been used (``torch/autograd/forward_ad.py``)."""

_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "flash attention": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "memory-efficient attention": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    "attention by math": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    "attention by cuDNN": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
}


def setting_values() -> tuple[Any, ...]:
    return tuple([get() for get, _ in _SETTINGS.values()])


def has_used_forward_ad() -> bool:
    return FORWARD_AD in sys.modules


class ThreadHazards:
    """The state that lanes on `devices` share at construction."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        shared = {CPU, *(device for device, lanes in Counter(devices).items() if lanes > 1)}
        self._states = {device: _state_of(device) for device in shared}
        self._cache = parametrize._cache
        self._settings = setting_values()

    def uses(self) -> list[str]:
        uses = [
            f"random numbers were drawn from the generator of {device}, in an undefined order: runs are not "
            "reproducible, and a checkpoint inside a replica recomputes with other numbers, so its gradients are wrong"
            for device in self._drawn_from()
        ]
        if has_used_forward_ad():
            uses.append("forward-mode AD has been used, as by torch.func.jvp: replicas get each other's tangents")
        if parametrize._cache is not self._cache:  # `cached` makes a new one at its end
            uses.append("parametrize.cached has been used: replicas get each other's weights")
        if changed := self._changed():
            uses.append(f"replicas left {' and '.join(changed)} changed: each may have put back another's value")
        return uses

    def restore_settings(self) -> None:
        for (_, set_value), was in zip(_SETTINGS.values(), self._settings, strict=True):
            set_value(was)

    def _changed(self) -> list[str]:
        return [name for name, was, now in zip(_SETTINGS, self._settings, setting_values(), strict=True) if now != was]

    def _drawn_from(self) -> list[torch.device]:
        with torch._C.DisableTorchFunction():  # the caller's function modes must see the replicas' calls only
            return [device for device, state in self._states.items() if not torch.equal(state, _state_of(device))]


def _state_of(device: torch.device) -> Tensor:
    if device == CPU:
        return torch.default_generator.get_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state
