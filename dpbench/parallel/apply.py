"""Call every replica on its chunk: all at once on long-lived threads, or one after the other."""

import contextvars
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import ExceptionWrapper

from dpbench.parallel.context import ThreadState
from dpbench.parallel.crew import CrewPool
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.lanes import Stream, current_stream, use_stream
from dpbench.parallel.policy import DEFAULT_POLICY, Dispatch, Policy, check_policy
from dpbench.parallel.trial import Trials
from dpbench.parallel.turns import Onlooker, Turns

Call = Callable[[], Any]

MOST_HELPS = 2
"""The first may be due to what only a first forward does, as compiling."""
_WAITED = (
    "a replica has taken seconds while others had not begun, so these were started on threads. Replicas that wait for "
    'each other need Policy(dispatch="threads"), which knows from the start'
)


class Dispatcher:
    """How one wrapper calls its replicas. Its threads end with it."""

    def __init__(self, policy: Policy) -> None:
        self._dispatch = policy.dispatch
        self._crews = CrewPool()
        self._onlooker = Onlooker(self._crews)
        self._helps = 0
        self._trials = Trials((Dispatch.SEQUENCE, Dispatch.THREADS))

    def run(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        """The calls' results, in order. The first call runs in the caller's thread."""
        if len(calls) == 1 or self._dispatch is Dispatch.SEQUENCE or state.is_watched:
            return _run_in_sequence(calls, state)
        if self._dispatch is Dispatch.THREADS:
            return self._run_on_threads(calls, state)
        with self._trials.choose((state.grad, len(calls))) as dispatch:
            if dispatch is Dispatch.SEQUENCE:
                return self._run_in_turns(calls, state)
            return self._run_on_threads(calls, state)

    def _run_in_turns(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        """In sequence, unless they turn out to wait for each other."""
        turns = Turns(calls, state)
        results = self._onlooker.run(turns)
        if turns.helper is not None:
            warnings.warn(_WAITED, stacklevel=2)
            self._helps += 1
            if self._helps >= MOST_HELPS:
                self._dispatch = Dispatch.THREADS
        return results

    def _run_on_threads(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        elsewhere = [partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)) for call in calls[1:]]
        return self._crews.run(partial(state.run_here, calls[0]), elsewhere)


def _run_in_sequence(calls: Sequence[Call], state: ThreadState) -> list[Any]:
    return [state.run_here(call) for call in calls]


def parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[DeviceLike | None] | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> list[Any]:
    """Applies each module to its inputs: a tuple or list of positional arguments, or one object.

    Without `devices` each module runs on the device of the first tensor in its inputs. If modules fail, the
    first one's error is raised as its own type, with its place and traceback as text, once all have ended.
    A single call leaves nothing to measure: "auto" is "threads", as in stock.
    """
    check_policy(policy)
    if policy.dispatch is Dispatch.AUTO:
        policy = replace(policy, dispatch=Dispatch.THREADS)
    return apply_with(Dispatcher(policy), modules, inputs, kwargs_tup, devices)


def apply_with(
    dispatcher: Dispatcher,
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None,
    devices: Sequence[DeviceLike | None] | None,
) -> list[Any]:
    """`parallel_apply` on the threads of `dispatcher`."""
    count = len(modules)
    if not count:
        raise ValueError(f"modules is {modules!r}; at least one module is needed")
    for name, given in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if given is not None and len(given) != count:
            raise AssertionError(f"The number of modules {count} is not equal to the number of {name} {len(given)}")
    calls = [
        _call_for(
            i, module, given, {} if kwargs_tup is None else kwargs_tup[i], None if devices is None else devices[i]
        )
        for i, (module, given) in enumerate(zip(modules, inputs, strict=True))
    ]
    outputs = dispatcher.run(calls, ThreadState.of_this_thread())
    _raise_first_error(outputs)
    return outputs


def _call_for(i: int, module: nn.Module, given: Any, kwargs: dict[str, Any], device: DeviceLike | None) -> Call:
    args = tuple(given) if isinstance(given, list | tuple) else (given,)
    if device is None:
        tensor = _first_tensor(args)
        if tensor is None:
            where = f"in replica {i}, no device was provided and no tensor input was found; device cannot be resolved"
            return partial(_wrapped_error, ValueError("no device"), where)
        device = tensor.device
    resolved = resolve_device(device)
    return partial(_call, partial(module, *args, **kwargs), i, resolved, current_stream(resolved))


def _call(forward: Call, i: int, device: torch.device, stream: Stream) -> Any:
    """The replica's output, or its error in a wrapper: no exception leaves a lane before all lanes have ended."""
    try:
        with use_stream(device, stream):
            return forward()
    except Exception:
        return ExceptionWrapper(where=f"in replica {i} on device {device if device.index is None else device.index}")


def _wrapped_error(error: Exception, where: str) -> ExceptionWrapper:
    return ExceptionWrapper((type(error), error, None), where=where)


def _raise_first_error(outputs: Sequence[Any]) -> None:
    errors = [output for output in outputs if isinstance(output, ExceptionWrapper)]
    if not errors:
        return
    try:
        errors[0].reraise()
    except Exception as first:
        for other in errors[1:]:
            first.add_note(f"Also caught {other.exc_type.__name__} {other.where}.\n{other.exc_msg}")
        # Without the frame of `reraise`, which names the error: a cycle that would keep the replicas for the collector.
        raise first.with_traceback(None) from None


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((tensor for member in members if (tensor := _first_tensor(member)) is not None), None)
