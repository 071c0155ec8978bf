"""How much memory a case needed."""

import resource
from collections.abc import Sequence

import torch


def peak_rss_bytes() -> int:
    """The most this process has held in host memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_device_bytes(devices: Sequence[torch.device]) -> dict[str, int] | None:
    """The allocator's peak on each accelerator of the case; None where there is none."""
    peaks = {
        str(device): int(torch.get_device_module(device).max_memory_allocated(device))
        for device in dict.fromkeys(devices)
        if device.type != "cpu"
    }
    return peaks or None
