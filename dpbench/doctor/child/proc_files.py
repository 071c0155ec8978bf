"""Parsers for files of /proc and /sys. Pure."""

import re


def parse_load(loadavg: str) -> float:
    """Return the average number of runnable threads over the last minute, from /proc/loadavg."""
    return float(loadavg.split(maxsplit=1)[0])


def parse_clocks_mhz(cpuinfo: str) -> list[float]:
    """Return the current clock of each core, from /proc/cpuinfo.

    Empty if the architecture does not report it.
    """
    return [float(mhz) for mhz in re.findall(r"^cpu MHz\s*: ([\d.]+)", cpuinfo, re.MULTILINE)]


def is_virtual(cpuinfo: str) -> bool:
    """Return whether /proc/cpuinfo has the flag `hypervisor`."""
    flags = re.search(r"^flags\s*:(.*)", cpuinfo, re.MULTILINE)
    return flags is not None and "hypervisor" in flags[1].split()


def parse_cores(ranges: str) -> list[int]:
    """Return the cores in a text such as ``0-3,8``, as cpulist files have it."""
    cores: list[int] = []
    for part in filter(None, ranges.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def parse_meminfo(meminfo: str) -> dict[str, int]:
    """Return the sizes in /proc/meminfo by name, in bytes."""
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE)}
