"""What a driver knows of GPUs that does not change while they work; None where it does not tell."""
# MERGED-DOC measure.uuids: """What torch and NVML both call a GPU by: its UUID. Its numbers differ; CUDA_VISIBLE_DEVICES moves torch's alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ParamSpec, TypeVar

import pynvml
import torch

from dpbench.measure.gpu.nvml import Gpu, NotOfferedError, ask, find_gpu, start


def uuids_of(devices: Sequence[torch.device]) -> dict[str, str]:
    """The bare UUIDs, without NVML's GPU- or MIG-, of the NVIDIA GPUs among the devices, by torch's name."""
    if torch.version.cuda is None:
        return {}
    gpus = dict.fromkeys(device for device in devices if device.type == "cuda")
    return {str(gpu): str(torch.cuda.get_device_properties(gpu).uuid) for gpu in gpus}


P = ParamSpec("P")
T = TypeVar("T")

_PATHS = {  # as `nvidia-smi topo -m` has them: from one switch between the two to the link between sockets
    pynvml.NVML_TOPOLOGY_INTERNAL: "same board",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


@dataclass(frozen=True)
class GpuFacts:
    """The tuples are in the order of the GPUs asked for, `links` in that of their pairs."""

    driver: str | None = None
    clocks: tuple[str | None, ...] = ()
    power_limits_w: tuple[float | None, ...] = ()
    links: tuple[str, ...] = ()


def read_gpu_facts(uuids: Mapping[str, str]) -> GpuFacts:
    """Of GPUs by torch's name, with their bare UUIDs."""
    try:
        start()
        driver = str(ask(pynvml.nvmlSystemGetDriverVersion))
    except NotOfferedError:
        return GpuFacts(None, (None,) * len(uuids), (None,) * len(uuids))
    gpus = [_or_none(find_gpu, device, uuid) for device, uuid in uuids.items()]
    return GpuFacts(
        driver,
        tuple(None if gpu is None else _or_none(_clocks, gpu) for gpu in gpus),
        tuple(None if gpu is None else _or_none(_power_limit_w, gpu) for gpu in gpus),
        tuple(_links(gpus)),
    )


def _or_none(read: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    try:
        return read(*arguments, **named)
    except NotOfferedError:
        return None


def _clocks(gpu: Gpu) -> str:
    """The most that the clocks may be; what `nvidia-smi --lock-gpu-clocks` has set, NVML has no words to ask for."""
    sm = ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu.handle, pynvml.NVML_CLOCK_SM)
    memory = ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu.handle, pynvml.NVML_CLOCK_MEM)
    return f"SM to {sm} MHz, memory to {memory} MHz"


def _power_limit_w(gpu: Gpu) -> float:
    return float(ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, gpu.handle)) / 1000


def _links(gpus: Sequence[Gpu | None]) -> list[str]:
    return [f"{i}-{j} {_link(gpus[i], gpus[j]) or 'unknown'}" for i, j in combinations(range(len(gpus)), 2)]


def _link(one: Gpu | None, other: Gpu | None) -> str | None:
    """NV and the number of NVLinks, or the kind of path over PCIe."""
    if one is None or other is None:
        return None
    if count := _or_none(_nvlinks, one, other):
        return f"NV{count}"
    level = _or_none(ask, pynvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle)
    return None if level is None else _PATHS.get(level, str(level))


def _nvlinks(one: Gpu, other: Gpu) -> int:
    """Links that end at the other, or else those that are up: then they go through switches that reach all GPUs."""
    status = ask(pynvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status != pynvml.NVML_P2P_STATUS_OK:
        return 0
    there = ask(pynvml.nvmlDeviceGetPciInfo, other.handle).busId
    up = [link for link in range(pynvml.NVML_NVLINK_MAX_LINKS) if _is_up(one, link)]
    ends = [ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, one.handle, link).busId for link in up]
    return ends.count(there) or len(up)


def _is_up(gpu: Gpu, link: int) -> bool:
    return bool(_or_none(ask, pynvml.nvmlDeviceGetNvLinkState, gpu.handle, link))
