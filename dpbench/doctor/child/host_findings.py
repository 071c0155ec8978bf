"""Findings on this host: other load, limits, NUMA nodes, memory. `pyperf system show` has clocks and turbo."""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpbench.cases.host import Limits, cpu_governor, parse_cpu_times, ranges, read_limits
from dpbench.doctor.findings import Finding, note, note_if, ok, unknown, unreliable

_GIB = 2**30
_CPUS = Path("sys/devices/system/cpu")
_BUSY = 0.10  # of all cores
_SOME_BUSY = 0.02  # of all cores
_STOLEN = 0.02
_SPARE_MEMORY = 0.10


@dataclass(frozen=True)
class Host:
    root: Path
    cores: Sequence[int]

    def text(self, path: str | Path) -> str | None:
        """None if the file is missing or may not be read."""
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
    """The process sleeps for `window_s`, so load is other processes'."""
    host = Host(root, sorted(os.sched_getaffinity(0)) if cores is None else cores)
    before = host.text("proc/stat")
    pause(window_s)
    after = host.text("proc/stat")
    return [
        *_load(before, after, window_s),
        *_limits(host, read_limits(root / "sys/fs/cgroup", root / "proc/self/cgroup")),
        _governor(host),
        _siblings(host),
        _numa(host),
        _memory(host),
        _virtual(host),
    ]


def _load(before: str | None, after: str | None, window_s: float) -> list[Finding]:
    if before is None or after is None:
        return [unknown("other load", "/proc/stat cannot be read")]
    since_boot = parse_cpu_times(after)
    window = since_boot.since(parse_cpu_times(before))
    share = window.busy / max(window.total, 1)
    value = f"{share:.1%} of all cores in {window_s:g} s"
    load = note_if(share >= _SOME_BUSY, "other load", value, "see `top`")
    if share >= _BUSY:
        load = unreliable("other load", value, "stop the other processes; `top` shows them")
    shares = [times.stolen / max(times.total, 1) for times in (window, since_boot)]
    value = f"{shares[0]:.1%} in {window_s:g} s, {shares[1]:.2%} since boot"
    advice = (
        "the hypervisor gives these cores to other machines: compare within one run only, or use a dedicated machine"
    )
    is_much = max(shares) >= _STOLEN
    return [load, (unreliable if is_much else partial(note_if, max(shares) > 0))("steal time", value, advice)]


def _limits(host: Host, limits: Limits) -> list[Finding]:
    cores = len(host.cores)
    online = parse_cores(host.text(_CPUS / "online") or "") or list(host.cores)
    value = f"{cores} of {len(online)} ({ranges(list(host.cores))})"
    usable = note_if(cores < len(online), "usable cores", value, "other processes may keep the other cores busy")
    cpu = ok("CPU limit", "none by control groups")
    if limits.cpus is not None:
        cpu = note("CPU limit", value := f"the time of {limits.cpus:g} cores, for {cores} cores")
        if limits.cpus < cores:
            advice = "the kernel stops threads that exceed the limit: lift it, or set --threads below it"
            cpu = unreliable("CPU limit", value, advice)
    size = limits.memory_bytes
    return [usable, cpu, ok("memory limit", "none by control groups" if size is None else f"{size / _GIB:.1f} GiB")]


def _governor(host: Host) -> Finding:
    governor = cpu_governor(host.root / _CPUS)
    if governor is None:
        return unknown("CPU governor", "the kernel reports no frequency scaling, as in most virtual machines")
    advice = "`cpupower frequency-set -g performance` keeps the clocks up"
    return note_if(governor != "performance", "CPU governor", governor, advice)


def _siblings(host: Host) -> Finding:
    active = host.text(_CPUS / "smt/active")
    if active is None:
        return unknown("hyper-threads", "smt/active does not exist")
    advice = "each two cores share one physical core: half as many --threads is steadier"
    return _on_or_off("hyper-threads", active.strip() == "1", advice)


def _on_or_off(what: str, is_on: bool, advice: str) -> Finding:
    return note_if(is_on, what, "on" if is_on else "off", advice)


def _numa(host: Host) -> Finding:
    lists = [path.read_text() for path in host.root.glob("sys/devices/system/node/node*/cpulist")]
    used = sum(bool(set(parse_cores(text)) & set(host.cores)) for text in lists)
    if not lists:
        return unknown("NUMA nodes", "/sys/devices/system/node does not exist")
    advice = "memory of another node is slower: `numactl --cpunodebind=0 --membind=0 dpbench ...` uses one node"
    return note_if(used > 1, "NUMA nodes", f"{used} of {len(lists)} used", advice)


def _memory(host: Host) -> Finding:
    sizes = parse_meminfo(host.text("proc/meminfo") or "")
    if "MemAvailable" not in sizes:
        return unknown("memory available", "/proc/meminfo has no MemAvailable")
    free, total = sizes["MemAvailable"], sizes["MemTotal"]
    swapped = sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0)
    value = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB, {swapped / _GIB:.1f} GiB swapped out"
    if free >= _SPARE_MEMORY * total:
        return ok("memory available", value)
    return unreliable("memory available", value, "free some memory: swapping would become part of the measured steps")


def _virtual(host: Host) -> Finding:
    is_guest = is_virtual(host.text("proc/cpuinfo") or "")
    advice = "the load of other machines on this host is invisible: trust ratios of one run, not times"
    return note_if(is_guest, "virtual machine", "yes" if is_guest else "no sign of one", advice)


def is_virtual(cpuinfo: str) -> bool:
    flags = re.search(r"^flags\s*:(.*)", cpuinfo, re.MULTILINE)
    return flags is not None and "hypervisor" in flags[1].split()


def parse_cores(ranges: str) -> list[int]:
    """The cores in a text such as ``0-3,8``, as cpulist files have it."""
    cores: list[int] = []
    for part in filter(None, ranges.strip().split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def parse_meminfo(meminfo: str) -> dict[str, int]:
    """Sizes by name, in bytes."""
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE)}
