"""The caller's thread-local state, and how it is set in the threads of the lanes.

A replica's forward behaves as if it ran in the caller's thread, and changes nothing in the thread that runs it.
Settings of the whole process (default dtype, determinism, SDPA flags, warning filters) need no transfer.
"""

import contextvars
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import overrides
from torch.utils import _python_dispatch

T = TypeVar("T")

_AUTOCAST_TYPES = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "privateuseone")

_DENORMAL = 5e-324
"""Equal to zero in a thread that flushes denormal numbers.

Torch can set this flag, but has no function to read it.
"""


class ThreadState(NamedTuple):
    """The caller's thread-local state, taken once per forward."""

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
        """The present state of the calling thread."""
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
        """Whether all replicas must run in this thread.

        They must if saved-tensor hooks, dispatch modes or ``torch.func`` transforms are active.

        Hooks and dispatch modes see every saved tensor or operator, and their order counts. A checkpoint around the
        wrapper identifies saved tensors by their number alone. Lanes that run at the same time would get each other's.
        torch's stream sanitizer is a dispatch mode that follows the lanes to their threads.
        """
        modes = self.dispatch_modes
        return self.has_saved_tensor_hooks or self.has_transforms or bool(modes and not all(map(_is_sanitizer, modes)))

    def set_flags(self) -> None:
        """Set grad mode, forward-mode AD, multithreading and autocast in the calling thread."""
        torch._C._set_grad_enabled(self.grad)
        torch._C._set_fwd_grad_enabled(self.forward_grad)
        torch._C._set_multithreading_enabled(self.multithreading)
        # `map`, because this runs once per lane and step, and a loop takes twice as long.
        tuple(map(torch.set_autocast_enabled, _AUTOCAST_TYPES, self.autocast))
        tuple(map(torch.set_autocast_dtype, _AUTOCAST_TYPES, self.autocast_dtypes))
        torch.set_autocast_cache_enabled(self.autocast_cache)

    def run_here(self, call: Callable[[], T]) -> T:
        """Call `call` in the state's own thread; undo the flags and context variables that it sets."""
        try:
            return contextvars.copy_context().run(call)
        finally:
            self.set_flags()

    def run_elsewhere(self, call: Callable[[], T]) -> T:
        """Call `call` in another thread with this state.

        The caller of this method brings the context variables.
        """
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
