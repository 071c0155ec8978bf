"""Registers ``sim`` as a device type of torch.

torch's device guard in Python supports one device and no streams. So this file also replaces the C++ functions below
`torch.accelerator`, `torch.Stream`, `torch.Event` and `torch.nn.parallel`.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.simulator import autocast, autograd, comm, current, routing, torch_sim
from dpbench.simulator.simulation import running, start
from dpbench.simulator.tensor import SimTensor, rebuild
from dpbench.simulator.torch_versions import function_apply, why_unsupported

_libraries: list[torch.library.Library] = []
_raise_pending = ctypes.pythonapi.Py_IsInitialized
"""ctypes checks for errors after each call of ``pythonapi``."""


def simulate(devices: int = 4, *, numbers: bool = True) -> None:
    """Register the devices ``sim:0`` to ``sim:<devices - 1>`` with torch, in this process. A second call must be equal.

    Without `numbers` tensors have shapes and no values, and what needs a value raises NotImplementedError.

    Raise ValueError for a number that is not allowed, RuntimeError for an unsupported torch, another registered
    backend, or a real accelerator.
    """
    if not isinstance(devices, int) or not 1 <= devices <= 64:
        raise ValueError(f"devices is {devices!r}; 1 to 64 are allowed")
    simulation = running()
    if simulation is not None:
        if simulation.devices != devices:
            raise RuntimeError(
                f"the simulator runs with {simulation.devices} devices; this process cannot start {devices}"
            )
        if simulation.numbers != numbers:
            raise RuntimeError(f"the simulator runs with numbers={simulation.numbers}; this process cannot change that")
        return
    _check_process()
    if fault := why_unsupported(torch.__version__):
        raise RuntimeError(fault)
    start_devices(devices, numbers=numbers)


def start_devices(devices: int, *, numbers: bool = True) -> None:
    """Without the checks of `simulate`."""
    _register()
    start(devices, numbers)
    _serve_accelerator()
    _serve_data_parallel()
    _serve_autograd()
    nn.Module._apply = keeping_ties(nn.Module._apply)  # type: ignore[method-assign]


def _check_process() -> None:
    other = torch._C._get_privateuse1_backend_name()
    if other != "privateuseone":
        raise RuntimeError(
            f"another backend, {other}, is registered in this process; the simulator cannot be registered beside it"
        )
    if torch.accelerator.is_available():
        raise RuntimeError(
            f"torch sees a real accelerator, {torch.accelerator.current_accelerator()}; hide it from this process"
        )


def _register() -> None:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    class Guard(torch._C._acc.DeviceGuard):
        """A destructor asks for the device type. If an error is pending when Python answers, the process ends. So this
        takes the error, and `autograd.run_backward` raises it again.
        """

        def type_(self) -> Any:
            try:
                _raise_pending()
            except BaseException as pending:
                if (backward := current.backward()) is not None:
                    backward.error = pending
            return torch._C._autograd.DeviceType.PrivateUse1

    _setup_privateuseone_for_python_backend("sim", backend_module=torch_sim, device_guard=Guard())
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_run, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("copy_", partial(_run, torch.ops.aten.copy_.default), "PrivateUse1")
    autocast.register(aten)
    _libraries.extend((everything, aten))
    SimTensor.dispatcher = staticmethod(routing.run)
    torch.serialization.add_safe_globals([rebuild])


def _run(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Factories, copies from the CPU, and the operators inside `torch.tensor`: they do not reach `SimTensor`."""
    return routing.run(func, args, kwargs)


def _serve_accelerator() -> None:
    for name, function in {
        "_accelerator_getDeviceIndex": current.device,
        "_accelerator_setDeviceIndex": torch_sim.set_device,
        "_accelerator_exchangeDevice": _exchange_device,
        "_accelerator_maybeExchangeDevice": _exchange_device,
        "_accelerator_getStream": torch_sim.current_stream,
        "_accelerator_setStream": torch_sim.set_stream,
        "_accelerator_synchronizeDevice": torch_sim.synchronize,
        "_sim_getCurrentRawStream": torch_sim.current_handle,  # as `_cuda_getCurrentRawStream`
    }.items():
        setattr(torch._C, name, function)
    torch.Stream = torch_sim.Stream  # type: ignore[misc,assignment]
    torch.Event = torch_sim.Event  # type: ignore[misc,assignment]


def _exchange_device(index: int) -> int:
    return current.set_device(torch_sim.index_of(index)) if index >= 0 else current.device()


def _serve_data_parallel() -> None:
    for name in ("broadcast", "broadcast_out", "broadcast_coalesced", "scatter", "gather"):
        setattr(torch._C, f"_{name}", getattr(comm, name))
    torch.cuda.nccl.is_available = lambda _: False


def _serve_autograd() -> None:
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    apply = function_apply()

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        return autograd.run_backward(engine, *args, **kwargs)

    def apply_function(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return autograd.apply_function(apply, cls, *args, **kwargs)

    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
    torch.autograd.Function.apply = classmethod(apply_function)  # type: ignore[assignment,method-assign]


Table = dict[str, Any]
_active = threading.local()


def keeping_ties(apply: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Tie weights again: torch cannot move a Python subclass in place, so `apply` makes a parameter for each place."""

    @wraps(apply)
    def tied(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if getattr(_active, "is_inside", False):
            return apply(self, *args, **kwargs)
        shared = [places for places in _places(self).values() if len(places) > 1]
        _active.is_inside = True
        try:
            result = apply(self, *args, **kwargs)
        finally:
            _active.is_inside = False
        for (table, name), *other_places in shared:
            for other_table, other_name in other_places:
                other_table[other_name] = table[name]
        return result

    return tied


def _places(root: nn.Module) -> dict[int, list[tuple[Table, str]]]:
    places: dict[int, list[tuple[Table, str]]] = {}
    for module in root.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items() if type(table) is dict else ():
                if isinstance(tensor, Tensor):
                    places.setdefault(id(tensor), []).append((table, name))
    return places
