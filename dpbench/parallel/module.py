"""`DataParallel`: a module that runs on several devices at once, one chunk of the batch on each."""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast  # as `record_function`; without a profiler 0.2 instead of 5 us
from torch.nn.parallel.data_parallel import _check_balance

from dpbench.parallel.apply import apply_with, parallel_apply
from dpbench.parallel.devices import DeviceLike, as_stock_id, check_exist, resolve_device, resolve_device_ids
from dpbench.parallel.dispatch import Dispatcher
from dpbench.parallel.gather import gather, gather_to, resolve_target
from dpbench.parallel.join import Target
from dpbench.parallel.lanes import Lane
from dpbench.parallel.policy import DEFAULT_POLICY, Policy, check_policy
from dpbench.parallel.replicas import ReplicaPool, replicate
from dpbench.parallel.replicatable import check_device
from dpbench.parallel.scatter import scatter_kwargs, scatter_to
from dpbench.parallel.transfer import check_links

T = TypeVar("T", bound=nn.Module)

_RUNTIME = ("_replicas", "_dispatcher", "_ready_for")
"""Attributes that hold memory and threads: never copied or pickled, made anew instead."""
_RUNS_EAGERLY = "replicas run eagerly: compiled code is bound to one module. Compile functions that the module calls"


class DataParallel(nn.DataParallel[T]):
    """Drop-in for ``torch.nn.DataParallel``; see README.md beside this file for what it does differently.

    It is one by type, so that libraries find the module in it, but shares no code with it.

    `device_ids` may repeat a device and name any type: ``["cpu"] * 4`` are four lanes on the CPU. Without it all
    accelerators of the default type are used; if there is none, forward is the module's own. The module's
    parameters and buffers must be on ``device_ids[0]`` at forward.
    """

    def __init__(
        self,
        module: T,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        policy: Policy = DEFAULT_POLICY,
    ) -> None:
        nn.Module.__init__(self)
        torch._C._log_api_usage_once("torch.nn.parallel.DataParallel")
        check_policy(policy)
        self.module = module
        devices = resolve_device_ids(device_ids)
        self.device_ids = [as_stock_id(device) for device in devices]
        self.policy = policy
        if not devices:
            return
        self.dim = dim
        if output_device is None:
            self.output_device = self.device_ids[0]
        else:
            resolved = resolve_device(output_device)
            check_exist("output_device", [resolved])
            self.output_device = -1 if output_device == -1 else as_stock_id(resolved)
        self._start_runtime()
        check_links(devices)
        if devices[0].type == "cuda":
            _check_balance([device.index for device in devices])
        if len(devices) == 1:
            self.module.to(devices[0])

    def _start_runtime(self) -> None:
        devices = [resolve_device(device) for device in self.device_ids]
        self.src_device_obj = devices[0]
        self._replicas = ReplicaPool(devices, self.policy)
        self._dispatcher = Dispatcher(self.policy)
        self._ready_for = [*self.device_ids], self.policy

    def _pool(self) -> ReplicaPool:
        """For the devices and the policy as they are now; both may be assigned, as stock's devices may."""
        if self._ready_for != (self.device_ids, self.policy):
            self._start_runtime()
        return self._replicas

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return torch.compiler.disable(DataParallel.forward, reason=_RUNS_EAGERLY)(self, *inputs, **kwargs)
        with _RecordFunctionFast("DataParallel.forward"):
            module = self.module
            if not self.device_ids:
                return module(*inputs, **kwargs)
            self._pool().check_device(module)
            chunks, kwarg_chunks = self.scatter(inputs, kwargs, self.device_ids)
            if not chunks and not kwarg_chunks:
                chunks, kwarg_chunks = ((),), ({},)  # a forward without arguments runs on the first device only
            if len(self.device_ids) == 1:
                return module(*chunks[0], **kwarg_chunks[0])
            # No name for the replicas here: they have to be idle by the time their set is emptied.
            outputs = self.parallel_apply(self.replicate(module, self.device_ids[: len(chunks)]), chunks, kwarg_chunks)
            self._replicas.empty_idle()
            return self.gather(outputs, self.output_device)

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[Any]:
        if module is self.module and list(device_ids) == self.device_ids[: len(device_ids)]:
            return self._pool().replicas(module, len(device_ids))
        return replicate(module, device_ids, policy=self.policy)

    def scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[DeviceLike]) -> Any:
        if list(device_ids) != self.device_ids:
            return scatter_kwargs(inputs, kwargs, device_ids, self.dim, self.policy)
        return scatter_to(self._lanes(), inputs, kwargs or {}, self.dim)

    def parallel_apply(self, replicas: Sequence[nn.Module], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        try:
            devices = self._pool().devices[: len(replicas)]
            return apply_with(self._dispatcher, replicas, inputs, kwargs, devices)
        finally:
            self._replicas.settle()

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        self._replicas.settle()  # a subclass may have a `parallel_apply` of its own
        device = resolve_target(output_device)
        nears = [lane.near for lane in self._lanes()] if device == self.src_device_obj else []
        return gather_to(Target(device, tuple(nears), self.policy.host_staged), outputs, self.dim)

    def _lanes(self) -> list[Lane]:
        return self._pool().streams.lanes(len(self.device_ids), self.policy.overlap_copies)

    def mark_dirty(self) -> None:
        """Tells of a write that nothing shows, as through ``.data``, where `Policy.skip_unchanged` is on."""
        if self.device_ids:
            self._replicas.mark_dirty()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _RUNTIME}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.device_ids:
            self._start_runtime()


def data_parallel(  # noqa: PLR0917 - the stock signature
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Any | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Any:
    """Evaluates ``module(*inputs, **module_kwargs)`` over `device_ids` once; the functional `DataParallel`."""
    check_policy(policy)
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    devices = resolve_device_ids(device_ids)
    if not devices:
        raise RuntimeError("no available devices were found")
    check_device([*module.parameters(), *module.buffers()], devices[0])
    chunks, kwarg_chunks = scatter_kwargs(inputs, module_kwargs, devices, dim, policy)
    if not chunks and not kwarg_chunks:
        chunks, kwarg_chunks = ((),), ({},)
    if len(devices) == 1:
        return module(*chunks[0], **kwarg_chunks[0])
    used = devices[: len(chunks)]
    outputs = parallel_apply(replicate(module, used, policy=policy), chunks, kwarg_chunks, used, policy)
    return gather(outputs, devices[0] if output_device is None else output_device, dim, policy)
