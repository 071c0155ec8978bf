"""A user's machine file with all its parts inline."""

from dpbench.projection.machine import HostCost, Kind


def quantity(low: float, unit: str, mid: float | None = None, high: float | None = None, source: str = "x") -> str:
    mid = low if mid is None else mid
    high = mid if high is None else high
    return f'{{ low = {low}, mid = {mid}, high = {high}, unit = "{unit}", source = "{source}" }}'


LINK = f"{{ bandwidth = {quantity(10, 'GB/s')}, latency = {quantity(10, 'us')} }}"
SHARES = "\n".join(f"{kind} = {quantity(0.5, 'ratio')}" for kind in Kind)
COSTS = "\n".join(f"{cost} = {quantity(10, 'us')}" for cost in HostCost)
NCCL = "\n".join(
    f"{algorithm}_{what}_{protocol} = {quantity(0.5, 'ratio' if what == 'share' else 'us')}"
    for algorithm in ("ring", "tree")
    for what in ("base", "nvlink", "pcie", "network", "share")
    for protocol in ("ll", "ll128", "simple")
)
INLINE = f"""
devices = 4
switches = [[0, 1], [2, 3]]
sockets = [[0], [1]]
peer = true
nvlinks = [[0, 1, 2]]
overlap = {quantity(1, "ratio", 1.1, 1.2)}
skew = {quantity(1, "ratio")}
notes = ["mine"]

[links]
pcie = {LINK}
uplink = {LINK}
socket = {LINK}
nvlink = {LINK}

[device]
memory = {quantity(2, "GiB")}
bandwidth = {quantity(100, "GB/s")}
gap = {quantity(1500, "ns")}
factor = {quantity(1, "ratio")}
[device.peak]
float32 = {quantity(2, "TFLOP/s")}
[device.efficiency.flop]
{SHARES}
[device.efficiency.byte]
{SHARES}

[host]
factor = {quantity(1, "ratio")}
[host.costs]
{COSTS}

[ring]
hop = "pcie"
ll128 = false
bus_bandwidth = {quantity(8, "GB/s", 9, 10)}

[nccl]
{NCCL}
"""
