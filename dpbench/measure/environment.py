"""Read the environment of this process: what must be equal before two records are compared."""

import torch
from torch import distributed as dist

from dpbench.measure.gpu.facts import GpuFacts, read_gpu_facts, uuids_of
from dpbench.measure.host_environment import host_environment
from dpbench.records.record import Environment


def read_environment() -> Environment:
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


def _gpus() -> list[torch.device]:
    """All GPUs, also those that the case does not use; simulated devices are not GPUs."""
    for kind in ("cuda", "xpu"):
        module = torch.get_device_module(kind)
        if module.is_available():
            return [torch.device(kind, index) for index in range(module.device_count())]
    return []


def nccl_version() -> str | None:
    """The version of torch's NCCL, built in or loaded; None without."""
    if not (dist.is_available() and dist.is_nccl_available()):
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())
