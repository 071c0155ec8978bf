"""Compiled modules on the lanes: one compiled callable serves the replicas of all lanes.

What ``torch.compile`` returns is bound to the base. Its *context* has the user's options, and can also compile the
function of the class, which gets the replica as its first argument. Dynamo finds compiled code by the function and by
guards on the arguments, so one graph serves the base and all lanes on a type of device::

    torch.compile   context(module._call_impl)           bound to the base, whose weights it would use
    lane i          context(Module._call_impl)(replica i, ...)
"""

import sys
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._dynamo.eval_frame import (
    _debug_get_cache_entry_list,
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
    set_eval_frame,
)

Compiled = Callable[..., Any]
"""Takes a replica and the arguments of its forward."""
Callback = Any
"""Dynamo's, of the thread: called for each new frame. None outside of ``torch.compile``."""

_DYNAMO = "torch._dynamo.eval_frame"
IN_PLACE = "_compiled_call_impl"
"""Where ``module.compile()`` keeps what it made, which is bound to the module."""

exchange_callback: Callable[[Callback], Callback] = set_eval_frame
"""Sets the thread's callback, and returns the one before."""


def never_compile(function: Any) -> None:
    """Let dynamo run the function as it is, and look at what it calls."""
    strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT)  # this frame, and those that it calls
    set_code_exec_strategy(function.__code__, strategy)


def is_optimized(module: nn.Module) -> bool:
    """Whether ``torch.compile(module)`` made it."""
    # From sys.modules: importing dynamo takes seconds, and no module is compiled without it.
    dynamo = sys.modules.get(_DYNAMO)
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def is_compiled(module: nn.Module) -> bool:
    """Whether a part of it is compiled."""
    parts = module.modules() if _DYNAMO in sys.modules else ()
    return any(part.__dict__.get(IN_PLACE) is not None or is_optimized(part) for part in parts)


def compiled_for_replicas(module: nn.Module) -> Compiled:
    """The same for replicas as what ``torch.compile(module)`` or ``module.compile()`` has compiled."""
    if is_optimized(module):
        optimized: Any = module
        kind: Any = type(optimized._orig_mod)
        compiled: Compiled = optimized.dynamo_ctx(_call if _is_left_alone(kind) else kind.__call__)
        return compiled
    bound: Any = module.__dict__[IN_PLACE]
    if bound not in _OF_BOUND:
        _OF_BOUND[bound] = _context_of(bound)(_entry_of(type(module)))
    return _OF_BOUND[bound]


_OF_BOUND: weakref.WeakKeyDictionary[Any, Compiled] = weakref.WeakKeyDictionary()


def _entry_of(kind: Any) -> Compiled:
    compiled: Compiled = _call if _is_left_alone(kind) else kind._call_impl
    return compiled


@cache
def _is_left_alone(kind: Any) -> bool:
    """Whether dynamo leaves the forward as it is, unless a function calls it: one of torch's own, as Sequential's."""
    from torch._dynamo import trace_rules

    return bool(trace_rules.check(kind.forward))


def _call(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


def _context_of(bound: Any) -> Any:
    from torch._dynamo.eval_frame import _TorchDynamoContext

    values = [cell.cell_contents for cell in bound.__closure__ or ()]
    contexts = [value for value in values if isinstance(value, _TorchDynamoContext)]
    if len(contexts) != 1:
        raise RuntimeError(
            f"module.compile() of torch {torch.__version__} made {bound!r}, in which DataParallel finds no context of "
            "the compiler; wrap torch.compile(module) instead"
        )
    return contexts[0]


def is_any_compiled(modules: Iterable[nn.Module]) -> bool:
    """Whether dynamo has compiled code for the forward of one of these modules, or for a function that calls one."""
    functions: set[Any] = {_call, *(type(module).forward for module in modules)}
    codes = [function.__code__ for function in functions if hasattr(function, "__code__")]
    return any(map(_debug_get_cache_entry_list, codes))


def without_base(chunk: Any) -> Any:
    """The same memory, but no view: guards see whether a tensor has a base, and only lane 0's chunk has one."""
    if not isinstance(chunk, Tensor) or not chunk.dim() or not chunk._is_view():
        return chunk
    return chunk.unsafe_split_with_sizes([chunk.size(0)])[0]


class InReplica:
    """A compiled callable in a replica's `IN_PLACE`. Weak, so that no replica is in a cycle."""

    __slots__ = ("_compiled", "_replica")

    def __init__(self, compiled: Compiled, replica: nn.Module) -> None:
        self._compiled, self._replica = compiled, weakref.ref(replica)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(self._replica(), *args, **kwargs)


def compiled_under(callback: Callback) -> Compiled:
    """For replicas of a wrapper that ``torch.compile`` has got: its callback sees the replicas alone."""

    def call(replica: nn.Module, *args: Any, **kwargs: Any) -> Any:
        entry = _entry_of(type(replica))
        before = set_eval_frame(callback)
        try:
            return entry(replica, *args, **kwargs)
        finally:
            set_eval_frame(before)

    return call
