"""torch and NVML number GPUs differently, and CUDA_VISIBLE_DEVICES changes torch's numbers alone; only the UUID is
common. A fact that the driver does not report is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ParamSpec, TypeVar

import torch

from dpbench.measure.gpu.bindings import pynvml
from dpbench.measure.gpu.nvml import Gpu, NotOfferedError, ask, find_gpu, start

P = ParamSpec("P")
T = TypeVar("T")

_PATHS = {  # the names of `nvidia-smi topo -m`, from a single switch between two GPUs to the link between sockets
    pynvml.NVML_TOPOLOGY_INTERNAL: "same board",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}


@dataclass(frozen=True)
class GpuFacts:
    """`links` has an entry for each pair."""

    driver: str | None = None
    clocks: tuple[str | None, ...] = ()
    power_limits_w: tuple[float | None, ...] = ()
    links: tuple[str, ...] = ()


def uuids_of(devices: Sequence[torch.device]) -> dict[str, str]:
    """Bare UUIDs of NVIDIA GPUs, without NVML's prefix ``GPU-`` or ``MIG-``, by torch's name."""
    if torch.version.cuda is None:
        return {}
    gpus = dict.fromkeys(device for device in devices if device.type == "cuda")
    return {str(gpu): str(torch.cuda.get_device_properties(gpu).uuid) for gpu in gpus}


def read_gpu_facts(uuids: Mapping[str, str]) -> GpuFacts:
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
    """The highest clocks the GPU allows; NVML cannot read a limit of `nvidia-smi --lock-gpu-clocks`."""
    sm = ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu.handle, pynvml.NVML_CLOCK_SM)
    memory = ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu.handle, pynvml.NVML_CLOCK_MEM)
    return f"SM to {sm} MHz, memory to {memory} MHz"


def _power_limit_w(gpu: Gpu) -> float:
    return float(ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, gpu.handle)) / 1000


def _links(gpus: Sequence[Gpu | None]) -> list[str]:
    return [f"{i}-{j} {_link(gpus[i], gpus[j]) or 'unknown'}" for i, j in combinations(range(len(gpus)), 2)]


def _link(one: Gpu | None, other: Gpu | None) -> str | None:
    """``NV`` and the number of NVLinks between two GPUs, or their path over PCIe."""
    if one is None or other is None:
        return None
    if count := _or_none(_nvlinks, one, other):
        return f"NV{count}"
    level = _or_none(ask, pynvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle)
    return None if level is None else _PATHS.get(level, str(level))


def _nvlinks(one: Gpu, other: Gpu) -> int:
    """If no link of one ends at the other, all that are up count: they end at switches, which reach all GPUs."""
    status = ask(pynvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status != pynvml.NVML_P2P_STATUS_OK:
        return 0
    there = ask(pynvml.nvmlDeviceGetPciInfo, other.handle).busId
    up = [link for link in range(pynvml.NVML_NVLINK_MAX_LINKS) if _is_up(one, link)]
    ends = [ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, one.handle, link).busId for link in up]
    return ends.count(there) or len(up)


def _is_up(gpu: Gpu, link: int) -> bool:
    return bool(_or_none(ask, pynvml.nvmlDeviceGetNvLinkState, gpu.handle, link))
