"""The least samples of a process from which its median counts.

A GPU needs longer: its clocks rise while it works, and NVML's utilisation is a mean over up to a second (nvml.h,
nvmlUtilization_t).
"""

from collections.abc import Sequence
from statistics import median

LEAST_SAMPLES = 20
LEAST_LONG_SAMPLES = 5
LONG_SAMPLE_S = 0.2
LEAST_S = 1.0
LEAST_ACCELERATOR_S = 2.0
MOST_S = 30.0
"""A process takes fewer samples if the least would take longer than this."""


def least_seconds(devices: Sequence[str]) -> float:
    """Simulated devices compute on the CPU."""
    return LEAST_S if all(device.startswith(("cpu", "sim")) for device in devices) else LEAST_ACCELERATOR_S


def least_count(samples_s: Sequence[float]) -> int:
    """Fewer if even the fastest sample is long, as a stall is not."""
    return LEAST_LONG_SAMPLES if min(samples_s) > LONG_SAMPLE_S else LEAST_SAMPLES


def are_enough(samples_s: Sequence[float], least_s: float) -> bool:
    return sum(samples_s) >= least_s and len(samples_s) >= least_count(samples_s)


def seconds_of_least(samples_s: Sequence[float], least_s: float) -> float:
    """The seconds of the least samples, if they are like these."""
    return max(least_s, least_count(samples_s) * median(samples_s))
