"""The fake NVML as the driver of the stand-in's devices. `start.py` puts it in the place of libnvidia-ml."""

import os
import time
from types import ModuleType

from tests.fake_nvml import FakeGpu, FakeNvml, Levels

BUSY_PERCENT, POWER_W = 50, 300


def answer_for(pynvml: ModuleType) -> None:
    """Let pynvml ask the fake. Its GPUs have the UUIDs that torch reads from the stand-in."""
    count = int(os.environ.get("DPBENCH_CUDA_DEVICES", "2"))
    pynvml.nvmlLib = FakeNvml([_gpu(index) for index in range(count)], time.time)


def _gpu(index: int) -> FakeGpu:
    return FakeGpu(
        f"{index + 1:02x}000000-0000-0000-0000-000000000000",
        pci=f"00000000:{index + 1:02X}:00.0",
        busy_percent=Levels((0, BUSY_PERCENT)),
        power_w=Levels((0, POWER_W)),
        sample_period_s=0.001,  # shorter than a driver's, because a test's window is short
    )
