"""What must be equal before two records are compared."""

import platform
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import dpbench
from dpbench.cases.host import affinity, commit_of, cpu_governor, cpu_model, read_limits, usable_cores
from dpbench.records.record import Environment

if TYPE_CHECKING:
    import torch


def read_environment() -> Environment:
    import torch

    from dpbench.measure.gpu.facts import GpuFacts, read_gpu_facts, uuids_of

    gpus = _gpus()
    facts = read_gpu_facts(uuids_of(gpus)) if gpus else GpuFacts()
    of_torch = {
        "torch": str(torch.__version__),
        "gpus": tuple(str(torch.get_device_module(gpu).get_device_properties(gpu).name) for gpu in gpus),
        "gpu_clocks": facts.clocks,
        "gpu_power_limits_w": facts.power_limits_w,
        "gpu_links": facts.links,
        "driver": facts.driver,
        "cuda": torch.version.cuda,
        "nccl": nccl_version() if gpus else None,
    }
    return host_environment().model_copy(update=of_torch)


def _gpus() -> "list[torch.device]":
    """All GPUs, also those that the case does not use."""
    import torch

    for kind in ("cuda", "xpu"):
        module = torch.get_device_module(kind)
        if module.is_available():
            return [torch.device(kind, index) for index in range(module.device_count())]
    return []


def nccl_version() -> str | None:
    import torch
    from torch import distributed as dist

    if not (dist.is_available() and dist.is_nccl_available()):
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def host_environment() -> Environment:
    """The part without GPUs, read without importing torch; torch's version may be ``none``."""
    limits = read_limits()
    commit, dirty = commit_of(Path(dpbench.__file__).parent)
    return Environment(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=_torch_version(),
        cpu_model=cpu_model(),
        cores=usable_cores(),
        gil=_has_gil(),
        affinity=affinity(),
        cpu_governor=cpu_governor(),
        cpu_limit=limits.cpus,
        memory_limit_bytes=limits.memory_bytes,
        dpbench=dpbench.__version__,
        commit=commit,
        dirty=dirty,
    )


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def _has_gil() -> bool:
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()
