"""Peaks of host and device memory, pinned memory, and a setting of glibc that saves page faults."""

from collections.abc import Sequence
from pathlib import Path

import psutil
import torch
from torch import Tensor

from dpbench.records.readings import Reading

_BLOCK_BYTES = 31 * 2**20
"""Just below the limit of 32 MiB on 64-bit machines; once freed, twice as much stays with the process."""
_PINNED = ("cuda",)


def settle_host_memory() -> None:
    """Make glibc keep freed host memory in the process, as it does in a larger program.

    glibc returns the heap's free end to the kernel above a threshold, and the next step pays page faults. The threshold
    grows with the largest freed block that was mapped alone (mallopt(3), M_MMAP_THRESHOLD), so it would depend on what
    ran before. The block here is never written, so it costs no memory.
    """
    torch.empty(_BLOCK_BYTES, dtype=torch.uint8)


def ready_for_copies(tensor: Tensor, device: torch.device) -> Tensor:
    """For CUDA the tensor in pinned memory.

    From other memory even a non-blocking copy may stall the host (CUDA Runtime API, "API synchronization behavior").
    """
    return tensor.pin_memory() if device.type in _PINNED else tensor


def peak_rss_bytes() -> int:
    """The peak of host memory of this process plus those of its descendants; shared pages count in each process."""
    this = psutil.Process()
    return sum(map(_peak_of_process_bytes, (this, *this.children(recursive=True))))


def _peak_of_process_bytes(process: psutil.Process) -> int:
    try:
        return peak_in_status_bytes(Path(f"/proc/{process.pid}/status").read_text())
    except OSError:  # the process has ended meanwhile
        return 0


def peak_in_status_bytes(status: str) -> int:
    """The peak in a /proc/PID/status text; 0 for a zombie.

    getrusage's ru_maxrss would include that of the process that called exec (getrusage(2), BUGS).
    """
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def reset_device_peaks(devices: Sequence[torch.device]) -> None:
    for device in dict.fromkeys(devices):
        if reset := getattr(torch.get_device_module(device), "reset_peak_memory_stats", None):
            reset(device)


def peak_device_bytes(devices: Sequence[torch.device]) -> dict[str, Reading]:
    """Memory in tensors by device, since the last reset."""
    return {str(device): _peak(device, "max_memory_allocated") for device in dict.fromkeys(devices)}


def peak_reserved_bytes(devices: Sequence[torch.device]) -> dict[str, Reading]:
    return {str(device): _peak(device, "max_memory_reserved") for device in dict.fromkeys(devices)}


def _peak(device: torch.device, name: str) -> Reading:
    peak = getattr(torch.get_device_module(device), name, None)
    return Reading(reason=f"torch.{device.type} has no {name}") if peak is None else Reading(value=peak(device))
