"""How much memory a case needed."""
# MERGED-DOC measure.host_memory: """Host memory that a step frees stays with the process, as in a training script that has read its data. glibc hands the free end of the heap back to the kernel as soon as it is longer than a threshold, 128 KiB at first, and the next step takes it again page by page: 1,200 page faults, a twentieth of the time of some steps, and of other schemes' none. The threshold grows with the largest block that was mapped by itself and freed, up to a limit (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD), so it would depend on what a process happened to do before. """

from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from dpbench.results.readings import Reading


def peak_rss_bytes() -> int:
    """The most that this process and each that it started has held in host memory so far, summed.

    The peaks need not have come at one time, and pages that several processes share count in each.
    """
    this = psutil.Process()
    return sum(map(_peak_of_process_bytes, (this, *this.children(recursive=True))))


def _peak_of_process_bytes(process: psutil.Process) -> int:
    try:
        return peak_in_status_bytes(Path(f"/proc/{process.pid}/status").read_text())
    except OSError:  # it has ended meanwhile
        return 0


def peak_in_status_bytes(status: str) -> int:
    """The high-water mark in the text of a /proc/PID/status; 0 for a zombie, which has no memory.

    Unlike getrusage's ru_maxrss this is not inherited from the process that called exec (man 2 getrusage, BUGS).
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
    """By device, what its allocator had given out at most since the last reset."""
    return {str(device): _peak(device, "max_memory_allocated") for device in dict.fromkeys(devices)}


def peak_reserved_bytes(devices: Sequence[torch.device]) -> dict[str, Reading]:
    """By device, what its allocator had taken from the device at most, given out or kept for later."""
    return {str(device): _peak(device, "max_memory_reserved") for device in dict.fromkeys(devices)}


def _peak(device: torch.device, question: str) -> Reading:
    ask = getattr(torch.get_device_module(device), question, None)
    return Reading(reason=f"torch.{device.type} has no {question}") if ask is None else Reading(value=ask(device))


_BLOCK_BYTES = 31 * 2**20
"""Just below the limit on 64-bit machines, 32 MiB; from then on up to twice as much stays."""


def settle_host_memory() -> None:
    """Brings glibc's thresholds to where a larger program has them. The block is never touched: it costs no memory."""
    torch.empty(_BLOCK_BYTES, dtype=torch.uint8)
