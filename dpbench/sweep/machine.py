"""What can be known of the machine without torch."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may run on, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def affinity() -> str:
    """The cores that this process may run on, as in ``0-3,8``."""
    return ranges(sorted(os.sched_getaffinity(0)))


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, neighbours folded."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def cpu_governor(cpus: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """The policy of the cores' clocks, such as performance; several where cores differ, None where none is told."""
    found = {path.read_text().strip() for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ",".join(sorted(found)) or None
