"""Findings on this host: other load, limits, clocks, NUMA nodes, memory."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.doctor.findings import Finding, note, ok, unknown, unreliable
from dpbench.sweep.host import CpuTimes, Limits, cpu_governor, parse_cpu_times, ranges, read_limits

_GIB = 2**30
_CPUS = Path("sys/devices/system/cpu")
_BUSY, _SOME_BUSY = 0.10, 0.02  # of all cores
_STOLEN, _SOME_STOLEN = 0.02, 0.0
_LOAD = 0.25  # threads a core
_SPARE_MEMORY = 0.10


@dataclass(frozen=True)
class Host:
    """The root of the file system, and the cores that this process may use."""

    root: Path
    cores: Sequence[int]

    def text(self, path: str | Path) -> str | None:
        """Return a file's text, or None if the file is missing or may not be read."""
        try:
            return (self.root / path).read_text()
        except OSError:
            return None


def examine_host(
    root: Path = Path("/"),
    cores: Sequence[int] | None = None,
    pause: Callable[[float], object] = time.sleep,
    window_s: float = 1.0,
) -> list[Finding]:
    """Return the findings on this host.

    The process sleeps for `window_s`, so that all load in this window belongs to other processes.
    """
    host = Host(root, sorted(os.sched_getaffinity(0)) if cores is None else cores)
    before = host.text("proc/stat")
    pause(window_s)
    after = host.text("proc/stat")
    limits = read_limits(root / "sys/fs/cgroup", root / "proc/self/cgroup")
    return [
        *_load(before, after, window_s),
        *_load_average(host),
        *_limits(host, limits),
        *_clocks(host),
        *_turbo(host),
        *_siblings(host),
        *_numa(host),
        *_memory(host),
        *_virtual(host),
    ]


def _load(before: str | None, after: str | None, window_s: float) -> Iterator[Finding]:
    if before is None or after is None:
        yield unknown("other load", "/proc/stat cannot be read")
        return
    since_boot = parse_cpu_times(after)
    window = since_boot.since(parse_cpu_times(before))
    yield _other_load(window, window_s)
    yield _stolen(window, since_boot, window_s)


def _other_load(window: CpuTimes, window_s: float) -> Finding:
    share = window.busy / max(window.total, 1)
    value = f"{share:.1%} of all cores in {window_s:g} s"
    if share >= _BUSY:
        return unreliable("other load", value, "stop the other processes; `top` shows them")
    return note("other load", value, "see `top`") if share >= _SOME_BUSY else ok("other load", value)


def _stolen(window: CpuTimes, since_boot: CpuTimes, window_s: float) -> Finding:
    share, since_boot_share = (times.stolen / max(times.total, 1) for times in (window, since_boot))
    value = f"{share:.1%} in {window_s:g} s, {since_boot_share:.2%} since boot"
    advice = (
        "the hypervisor gives these cores to other machines: compare within one run only, or use a dedicated machine"
    )
    most = max(share, since_boot_share)
    if most >= _STOLEN:
        return unreliable("steal time", value, advice)
    return note("steal time", value, advice) if most > _SOME_STOLEN else ok("steal time", value)


def _load_average(host: Host) -> Iterator[Finding]:
    text = host.text("proc/loadavg")
    if text is None:
        yield unknown("load average", "/proc/loadavg cannot be read")
        return
    load = parse_load(text)
    value = f"{load:.2f} over the last minute, for {len(host.cores)} cores"
    busy = load > _LOAD * len(host.cores)
    yield note("load average", value, "another process was busy a moment ago") if busy else ok("load average", value)


def _limits(host: Host, limits: Limits) -> Iterator[Finding]:
    online = parse_cores(host.text(_CPUS / "online") or "") or list(host.cores)
    value = f"{len(host.cores)} of {len(online)} ({ranges(list(host.cores))})"
    some = len(host.cores) < len(online)
    yield (
        note("usable cores", value, "other processes may keep the other cores busy")
        if some
        else ok("usable cores", value)
    )
    if limits.cpus is None:
        yield ok("CPU limit", "none by control groups")
    else:
        value = f"the time of {limits.cpus:g} cores, for {len(host.cores)} cores"
        advice = "the kernel stops threads that exceed the limit: lift it, or set --threads below it"
        throttles = limits.cpus < len(host.cores)
        yield unreliable("CPU limit", value, advice) if throttles else note("CPU limit", value)
    memory = limits.memory_bytes
    yield ok("memory limit", "none by control groups" if memory is None else f"{memory / _GIB:.1f} GiB")


def _clocks(host: Host) -> Iterator[Finding]:
    advice = "`cpupower frequency-set -g performance` keeps the clocks up"
    governor = cpu_governor(host.root / _CPUS)
    if governor is None:
        yield unknown("CPU governor", "the kernel reports no frequency scaling, as in most virtual machines")
    else:
        steady = governor == "performance"
        yield ok("CPU governor", governor) if steady else note("CPU governor", governor, advice)
    now_mhz = parse_clocks_mhz(host.text("proc/cpuinfo") or "")
    scaling = _CPUS / f"cpu{host.cores[0]}" / "cpufreq"
    most_khz, allowed_khz = host.text(scaling / "cpuinfo_max_freq"), host.text(scaling / "scaling_max_freq")
    if not now_mhz:
        yield unknown("CPU clock", "/proc/cpuinfo has no clock")
        return
    value = f"{min(now_mhz):,.0f} to {max(now_mhz):,.0f} MHz now"
    if most_khz is None or allowed_khz is None:
        yield ok("CPU clock", f"{value}; the maximum is unknown: the kernel reports no frequency scaling")
        return
    value += f", {int(allowed_khz) // 1000:,} MHz allowed of {int(most_khz) // 1000:,}"
    capped = int(allowed_khz) < int(most_khz)
    yield note("CPU clock", value, "steady, but below the maximum") if capped else ok("CPU clock", value)


def _turbo(host: Host) -> Iterator[Finding]:
    off, boost = host.text(_CPUS / "intel_pstate/no_turbo"), host.text(_CPUS / "cpufreq/boost")
    if off is None and boost is None:
        yield unknown("turbo", "neither intel_pstate/no_turbo nor cpufreq/boost exists")
    elif (off is not None and off.strip() == "0") or (boost is not None and boost.strip() == "1"):
        yield note(
            "turbo", "on", "clocks depend on temperature and on the other cores' load: expect drift within minutes"
        )
    else:
        yield ok("turbo", "off")


def _siblings(host: Host) -> Iterator[Finding]:
    active = host.text(_CPUS / "smt/active")
    if active is None:
        yield unknown("hyper-threads", "smt/active does not exist")
    elif active.strip() == "1":
        yield note("hyper-threads", "on", "each two cores share one physical core: half as many --threads is steadier")
    else:
        yield ok("hyper-threads", "off")


def _numa(host: Host) -> Iterator[Finding]:
    lists = {path.parent.name: path.read_text() for path in host.root.glob("sys/devices/system/node/node*/cpulist")}
    used = sorted(name for name, text in lists.items() if set(parse_cores(text)) & set(host.cores))
    if not lists:
        yield unknown("NUMA nodes", "/sys/devices/system/node does not exist")
    elif len(used) > 1:
        advice = "memory of another node is slower: `numactl --cpunodebind=0 --membind=0 dpbench ...` uses one node"
        yield note("NUMA nodes", f"{len(used)} of {len(lists)} used", advice)
    else:
        yield ok("NUMA nodes", f"{len(used)} of {len(lists)} used")


def _memory(host: Host) -> Iterator[Finding]:
    sizes = parse_meminfo(host.text("proc/meminfo") or "")
    if "MemAvailable" not in sizes:
        yield unknown("memory available", "/proc/meminfo has no MemAvailable")
        return
    free, total = sizes["MemAvailable"], sizes["MemTotal"]
    swapped = sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0)
    value = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB, {swapped / _GIB:.1f} GiB swapped out"
    if free < _SPARE_MEMORY * total:
        yield unreliable(
            "memory available", value, "free some memory: swapping would become part of the measured steps"
        )
    else:
        yield ok("memory available", value)


def _virtual(host: Host) -> Iterator[Finding]:
    if is_virtual(host.text("proc/cpuinfo") or ""):
        yield note(
            "virtual machine",
            "yes",
            "the load of other machines on this host is invisible: trust ratios of one run, not times",
        )
    else:
        yield ok("virtual machine", "no sign of one")


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
