"""Read the environment of this process: what must be equal before two records are compared."""

import platform
import socket
import sys
from pathlib import Path

import torch
from torch import distributed as dist

import dpbench
from dpbench.cases.host import affinity, commit_of, cpu_governor, cpu_model, read_limits, usable_cores
from dpbench.measure.gpu.facts import GpuFacts, read_gpu_facts, uuids_of
from dpbench.records.record import Environment


def read_environment() -> Environment:
    """Return the environment of this process."""
    gpus = _gpus()
    facts, limits = read_gpu_facts(uuids_of(gpus)) if gpus else GpuFacts(), read_limits()
    commit, dirty = commit_of(Path(dpbench.__file__).parent)
    return Environment(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=torch.__version__,
        cpu_model=cpu_model(),
        cores=usable_cores(),
        gil=_has_gil(),
        affinity=affinity(),
        cpu_governor=cpu_governor(),
        cpu_limit=limits.cpus,
        memory_limit_bytes=limits.memory_bytes,
        gpus=tuple(str(torch.get_device_module(gpu).get_device_properties(gpu).name) for gpu in gpus),
        gpu_clocks=facts.clocks,
        gpu_power_limits_w=facts.power_limits_w,
        gpu_links=facts.links,
        driver=facts.driver,
        cuda=torch.version.cuda,
        nccl=nccl_version() if gpus else None,
        dpbench=dpbench.__version__,
        commit=commit,
        dirty=dirty,
    )


def _gpus() -> list[torch.device]:
    """Return all GPUs that torch can use, also those that the case does not use. Simulated devices are not GPUs."""
    for kind in ("cuda", "xpu"):
        module = torch.get_device_module(kind)
        if module.is_available():
            return [torch.device(kind, index) for index in range(module.device_count())]
    return []


def _has_gil() -> bool:
    """Return whether the interpreter has its lock. Before Python 3.13 it always has."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()


def nccl_version() -> str | None:
    """Return the version of torch's NCCL, built in or loaded, or None if torch has none."""
    if not (dist.is_available() and dist.is_nccl_available()):
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())
