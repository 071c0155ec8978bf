"""Call every replica on its chunk and device."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import ExceptionWrapper

from dpbench.parallel.compiled import is_compiled
from dpbench.parallel.devices import DeviceLike, current_device, resolve_device
from dpbench.parallel.dispatch import Dispatcher
from dpbench.parallel.lanes import Stream, current_stream, use_stream
from dpbench.parallel.policy import DEFAULT_POLICY, Dispatch, Policy, check_policy
from dpbench.parallel.thread_state import ThreadState

Call = Callable[[], Any]


def parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[DeviceLike | None] | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> list[Any]:
    """Apply each module to its inputs: a tuple or list of positional arguments, or one object. Without `devices` each
    module runs on the device of the first tensor in its inputs, or else on the current device. If modules fail, the
    first one's error is raised when all have ended. It keeps its type; its text names the replica and holds the
    traceback.
    """
    check_policy(policy)
    if any(map(is_compiled, modules)):
        policy = replace(policy, dispatch=Dispatch.SEQUENCE)  # `compile_report.py` says why
    elif policy.dispatch is Dispatch.AUTO:
        policy = replace(policy, dispatch=Dispatch.THREADS)
    return apply_with(Dispatcher(policy), modules, inputs, kwargs_tup, devices)


def apply_with(
    dispatcher: Dispatcher,
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None,
    devices: Sequence[DeviceLike | None] | None,
) -> list[Any]:
    count = len(modules)
    if not count:
        raise ValueError(f"modules is {modules!r}; at least one module is needed")
    for name, values in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if values is not None and len(values) != count:
            raise AssertionError(f"The number of modules {count} is not equal to the number of {name} {len(values)}")
    used = [_device_of(chunk, None if devices is None else devices[i]) for i, chunk in enumerate(inputs)]
    calls = [
        _call_for(i, module, chunk, {} if kwargs_tup is None else kwargs_tup[i], device)
        for i, (module, chunk, device) in enumerate(zip(modules, inputs, used, strict=True))
    ]
    is_training = getattr(modules[0], "training", None)
    state = ThreadState.of_this_thread()
    outputs = dispatcher.run(calls, used, state, is_training)
    if True in state.autocast:
        # Without grad mode the first lane's weights are the base's own. Autocast caches casts of them, and the weights
        # may change before the next forward. In stock the lanes' threads clear the cache.
        torch.clear_autocast_cache()
    _raise_first_error(outputs)
    return outputs


def _device_of(chunk: Any, device: DeviceLike | None) -> torch.device:
    if device is None:
        tensor = _first_tensor(chunk)
        return current_device() if tensor is None else resolve_device(tensor.device)
    return resolve_device(device)


def _call_for(i: int, module: nn.Module, chunk: Any, kwargs: dict[str, Any], device: torch.device) -> Call:
    args = tuple(chunk) if isinstance(chunk, list | tuple) else (chunk,)
    return partial(_call, partial(module, *args, **kwargs), i, device, current_stream(device))


def _call(forward: Call, i: int, device: torch.device, stream: Stream) -> Any:
    try:
        with use_stream(device, stream):
            return forward()
    except Exception:
        return ExceptionWrapper(where=f"in replica {i} on device {device if device.index is None else device.index}")


def _raise_first_error(outputs: Sequence[Any]) -> None:
    errors = [output for output in outputs if isinstance(output, ExceptionWrapper)]
    if not errors:
        return
    try:
        errors[0].reraise()
    except Exception as first:
        for other in errors[1:]:
            first.add_note(f"Also caught {other.exc_type.__name__} {other.where}.\n{other.exc_msg}")
        # Without the frame of `reraise`: it names the error, and the cycle would keep the replicas until a collection.
        raise first.with_traceback(None) from None


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((tensor for member in members if (tensor := _first_tensor(member)) is not None), None)
