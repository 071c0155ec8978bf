"""The machine as this process may use it: CPU, cores, limits of control groups, network links.

A process is in one group of each hierarchy, and the limits of all groups above it hold too. Version 2 has one hierarchy
under /sys/fs/cgroup; version 1 has one for each controller. Inside a container the group's path is often that of the
host, while its files lie at the mount's root. So a group without files is skipped.
"""

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """A container's machine can have more."""
    return len(os.sched_getaffinity(0))


def affinity() -> str:
    """The usable cores, as in ``0-3,8``."""
    return ranges(sorted(os.sched_getaffinity(0)))


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``0-3,8``."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def cpu_governor(cpus: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """Such as performance; all with commas if cores differ; None if unknown."""
    governors = {path.read_text().strip() for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ",".join(sorted(governors)) or None


def link_mbit_per_s(interface: str, net: Path = Path("/sys/class/net")) -> int | None:
    """The speed that the driver reports for a network interface, or None, as for most virtual ones."""
    text = (_text(net / interface / "speed") or "").strip()
    return int(text) if text.isdecimal() and int(text) else None


_NO_LIMIT_BYTES = 1 << 60  # version 1 writes no limit as a number near 2**63


@dataclass(frozen=True)
class Limits:
    """`cpus` is in cores, None is no limit."""

    cpus: float | None = None
    memory_bytes: int | None = None


def read_limits(mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Limits:
    """The tightest limits of the process's groups."""
    try:
        groups = parse_membership(membership.read_text())
    except OSError:
        return Limits()
    cpus = [cpus for folder in _folders(mount, groups, "cpu") if (cpus := _cpus(folder)) is not None]
    memory = [size for folder in _folders(mount, groups, "memory") if (size := _memory_bytes(folder)) is not None]
    return Limits(min(cpus, default=None), min(memory, default=None))


def parse_membership(text: str) -> dict[str, str]:
    """The process's group by controller; version 2 has the name ''."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def parse_cpu_max(text: str) -> float | None:
    """Cores, from version 2's quota and period in microseconds: ``200000 100000`` is 2, ``max 100000`` no limit, so
    None.
    """
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)


def parse_cpu_quota(quota: str, period: str) -> float | None:
    """Cores from version 1's cpu.cfs_quota_us and cpu.cfs_period_us; None for a quota of -1."""
    return int(quota) / int(period) if int(quota) > 0 else None


def parse_memory(text: str) -> int | None:
    """Bytes, or None without a limit, from memory.max or version 1's memory.limit_in_bytes."""
    return None if text.strip() == "max" or int(text) >= _NO_LIMIT_BYTES else int(text)


def _folders(mount: Path, groups: dict[str, str], controller: str) -> Iterator[Path]:
    for name, root in (("", mount), ("", mount / "unified"), (controller, mount / controller)):
        if name in groups:
            path = PurePosixPath(groups[name]).relative_to("/")
            yield from (root / part for part in (path, *path.parents))


def _cpus(folder: Path) -> float | None:
    if (limit := _text(folder / "cpu.max")) is not None:
        return parse_cpu_max(limit)
    quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    return None if quota is None or period is None else parse_cpu_quota(quota, period)


def _memory_bytes(folder: Path) -> int | None:
    limits = [_text(folder / name) for name in ("memory.max", "memory.limit_in_bytes")]
    return next((parse_memory(limit) for limit in limits if limit is not None), None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


@dataclass(frozen=True)
class CpuTimes:
    """All cores' ticks; the hypervisor gave `stolen` ones to other machines."""

    busy: int
    stolen: int
    total: int

    def since(self, before: "CpuTimes") -> "CpuTimes":
        return CpuTimes(self.busy - before.busy, self.stolen - before.stolen, self.total - before.total)


def parse_cpu_times(stat: str) -> CpuTimes:
    """Ticks since boot, from the first line of /proc/stat.

    Its fields are user nice system idle iowait irq softirq steal; guest fields after them are part of user.
    """
    user, nice, system, idle, iowait, irq, softirq, stolen = map(int, stat.split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + irq + softirq
    return CpuTimes(busy, stolen, busy + stolen + idle + iowait)


def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """The checkout's commit, and whether tracked files were changed; both None outside a checkout."""
    try:
        head = _git(folder, "rev-parse", "HEAD")
        tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return (head, bool(changes)) if tracked else (None, None)


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
