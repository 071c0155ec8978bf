"""Texts of /proc and /sys and what they say. Pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class CpuTimes:
    """Since boot over all cores, in ticks of the kernel. `stolen` is what the hypervisor gave to others meanwhile."""

    busy: int
    stolen: int
    total: int

    def since(self, before: "CpuTimes") -> "CpuTimes":
        return CpuTimes(self.busy - before.busy, self.stolen - before.stolen, self.total - before.total)


def parse_cpu_times(stat: str) -> CpuTimes:
    """The first line of /proc/stat: user nice system idle iowait irq softirq steal; guests after it are in user."""
    user, nice, system, idle, iowait, irq, softirq, stolen = map(int, stat.split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + irq + softirq
    return CpuTimes(busy, stolen, busy + stolen + idle + iowait)


def parse_load(loadavg: str) -> float:
    """/proc/loadavg: how many threads wanted to run, as average over a minute or so."""
    return float(loadavg.split(maxsplit=1)[0])


def parse_clocks_mhz(cpuinfo: str) -> list[float]:
    """The clock of each core now; none where the architecture does not tell."""
    return [float(mhz) for mhz in re.findall(r"^cpu MHz\s*: ([\d.]+)", cpuinfo, re.MULTILINE)]


def is_virtual(cpuinfo: str) -> bool:
    """Whether the processor says that a hypervisor runs it."""
    flags = re.search(r"^flags\s*:(.*)", cpuinfo, re.MULTILINE)
    return flags is not None and "hypervisor" in flags[1].split()


def parse_cores(ranges: str) -> list[int]:
    """``0-3,8`` as in cpulist files; an empty text is no cores."""
    cores: list[int] = []
    for part in filter(None, ranges.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def parse_meminfo(meminfo: str) -> dict[str, int]:
    """/proc/meminfo in bytes by name."""
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE)}
