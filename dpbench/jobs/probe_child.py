"""The child that reports what this machine has.

python -m dpbench.jobs.probe_child --record-fd N --parent-pid P
"""

import os
import platform
import warnings
from typing import Any

import psutil

from dpbench.cases.host import cpu_model, usable_cores
from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.engine.child import answer
from dpbench.engine.messages import ProbeRequest


def respond(request: ProbeRequest) -> MachineInfo:
    nvml_gpus, nvml_error = nvml_names()
    facts: dict[str, Any] = {"nvml_gpus": nvml_gpus, "nvml_error": nvml_error, "driver": _driver_version()}
    try:
        import torch

        from dpbench.measure.environment import nccl_version
    except (ImportError, OSError) as error:  # OSError: a shared library does not load
        reason = f"torch does not import: {first_line(error)}"
        facts |= {"torch": None, "torch_error": reason, "workload_errors": dict.fromkeys(request.workloads, reason)}
    else:
        accelerators, torch_error = read_accelerators()
        facts |= {
            "torch": torch.__version__,
            "torch_error": torch_error or (why_unused() if nvml_gpus and not accelerators else None),
            "accelerators": accelerators,
            "backends": _backends(),
            "nccl": nccl_version() if accelerators else None,
            "workload_errors": _workload_errors(request),
        }
    return MachineInfo(
        python=platform.python_version(),
        cpu_model=cpu_model(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        **facts,
    )


def nvml_names() -> tuple[tuple[str, ...], str | None]:
    from dpbench.measure.gpu.bindings import pynvml
    from dpbench.measure.gpu.nvml import LostGpuError, NotOfferedError, ask, start

    try:
        start()
        count = int(ask(pynvml.nvmlDeviceGetCount))
    except (LostGpuError, NotOfferedError) as error:
        return (), first_line(error)
    names, problem = [], None
    for index in range(count):
        try:
            names.append(str(ask(pynvml.nvmlDeviceGetName, ask(pynvml.nvmlDeviceGetHandleByIndex, index))))
        except (LostGpuError, NotOfferedError) as error:
            names.append(f"GPU {index}")
            problem = f"GPU {index}: {first_line(error)}"
    return tuple(names), problem


def _driver_version() -> str | None:
    from dpbench.measure.gpu.bindings import pynvml
    from dpbench.measure.gpu.nvml import LostGpuError, NotOfferedError, ask

    try:
        return str(ask(pynvml.nvmlSystemGetDriverVersion))
    except (LostGpuError, NotOfferedError):
        return None


def read_accelerators() -> tuple[tuple[Accelerator, ...], str | None]:
    """What torch can use, and its error if that is nothing."""
    import torch

    with warnings.catch_warnings(record=True) as caught:  # torch warns if the driver is too old
        warnings.simplefilter("always")
        try:
            kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            if kind is None:
                return (), first_line(caught[-1].message) if caught else None
            module = torch.get_device_module(kind)
            devices = [module.get_device_properties(i) for i in range(torch.accelerator.device_count())]
        except RuntimeError as error:
            return (), first_line(error)
    return tuple(
        Accelerator(device=f"{kind.type}:{i}", name=device.name, memory_bytes=device.total_memory)
        for i, device in enumerate(devices)
    ), None


def why_unused() -> str:
    """The likeliest reason why torch sees no GPU although the driver does."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None:
        return f"this torch, {torch.__version__}, is built without CUDA"
    if hidden is not None:
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides them"
    return f"this torch, {torch.__version__} for CUDA {torch.version.cuda}, finds no device it can use"


def _backends() -> tuple[str, ...]:
    from torch import distributed as dist

    if not dist.is_available():
        return ()
    return tuple(name for name in ("gloo", "nccl", "mpi", "ucc", "xccl") if dist.is_backend_available(name))


def _workload_errors(request: ProbeRequest) -> dict[str, str | None]:
    from dpbench.workloads.resolve import check, resolve
    from dpbench.workloads.workload import WorkloadError

    errors: dict[str, str | None] = {}
    for name in request.workloads:
        try:
            check(resolve(name, request.data), name)
            errors[name] = None
        except WorkloadError as error:
            errors[name] = str(error)
    return errors


def first_line(error: object) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    answer(respond)
