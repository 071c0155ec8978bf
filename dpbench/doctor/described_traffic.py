"""What the links and NCCL's rings of a machine file carry, from measured copies and collectives. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpbench.doctor.described_device import NothingMeasuredError
from dpbench.doctor.described_links import Joined, rate_between
from dpbench.doctor.measured import Collectives, HostCopies, Measurements, PairCopies
from dpbench.doctor.numbers import entry, median, quantity, rates, usable
from dpbench.projection.described.machine import Quantity

_NEIGHBOUR_SHARES = (0.6, 0.85, 1.0)
"""What share of the slowest copy between neighbours a ring is taken to reach, where NCCL was not measured. Ours."""


@dataclass
class _Way:
    """Rates in bytes/s and latencies in seconds of the copies over one kind of link."""

    rates: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)


def link_tables(found: Measurements, layout: Joined, stamp: str) -> dict[str, Any]:
    """Return the table ``links``: exactly the kinds that a machine file of this layout needs."""
    host = _host_way(found.host_copies, found.copy_bytes)
    between = {role: _pairs_way(found, layout, role) for role in ("near", "far", "nvlink")}
    near = _Way(host.rates + between["near"].rates, host.latency_s + between["near"].latency_s)
    slow = _Way(between["near"].rates + between["far"].rates, between["near"].latency_s + between["far"].latency_s)
    tables = {"pcie": _table(near if layout.peer else host, host, stamp, "pinned copies with the host")}
    if any(len(members) > 1 for members in layout.switches):
        tables["uplink"] = _table(
            _uplink_way(found, layout), host, stamp, "copies from the host to two devices at once"
        )
    if layout.nvlinks:
        tables["nvlink"] = _table(between["nvlink"], host, stamp, "copies between devices over NVLink, for one link")
    if layout.slow_pairs and not layout.peer:
        tables["staged"] = _table(slow, host, stamp, "copies between devices without peer access")
    elif layout.slow_pairs and layout.crosses_sockets:
        tables["socket"] = _table(between["far"], host, stamp, "copies between devices of two sockets")
    return tables


def ring_table(found: Measurements, layout: Joined, stamp: str) -> dict[str, Any]:
    """Return the table ``ring``, for several devices. Raise NothingMeasuredError if nothing shows its bandwidth."""
    hop = "nvlink" if layout.rings_over_nvlink else "pcie"
    major, minor = found.capability
    # NCCL's tuning.cc: LL128 over NVLink between Volta, A100 and later server cards alone.
    ll128 = hop == "nvlink" and major >= 7 and minor == 0
    measured = None if found.collectives is None else _bus(found.collectives, layout.devices, stamp)
    bandwidth = measured or _neighbours(found, layout, stamp)
    if bandwidth is None:
        reason = found.failures.get("collectives", "no copy between devices was measured")
        raise NothingMeasuredError(
            f"ring.bus_bandwidth: neither NCCL nor a copy between devices was measured: {reason}"
        )
    return {"hop": hop, "ll128": ll128, "bus_bandwidth": entry(bandwidth, "bandwidth")}


def _bus(found: Collectives, devices: int, stamp: str) -> Quantity | None:
    """Return the bus bandwidth of a large all-reduce, less the time of a small one."""
    small_s = median(found.small_s) or 0.0
    moved = 2 * (devices - 1) / devices * found.large_bytes
    whole_s = usable(found.all_reduce_s)
    kept_s = [each - small_s for each in whole_s if each > 2 * small_s] or whole_s
    size = f"{found.large_bytes >> 20} MiB"
    return quantity(
        rates(moved, kept_s), f"{stamp}: torch.cuda.nccl.all_reduce of {size}, less the time of a small one"
    )


def _neighbours(found: Measurements, layout: Joined, stamp: str) -> Quantity | None:
    rate_of = {(pair.source, pair.destination): rate_between(found, pair) for pair in found.pairs}
    ring = [(i, (i + 1) % layout.devices) for i in range(layout.devices)]
    slowest = min(usable(rate_of.get(step) or 0.0 for step in ring), default=None)
    if slowest is None:
        return None
    low, mid, high = (share * slowest for share in _NEIGHBOUR_SHARES)
    return Quantity(low, mid, high, f"{stamp}: NCCL not measured; 0.6 to 1 of the slowest copy between neighbours")


def _table(way: _Way, host: _Way, stamp: str, what: str) -> dict[str, Any]:
    """Return a link's bandwidth and latency. What was not measured is as between host and device."""
    fallback = f"as pinned copies with the host, {stamp}"
    bandwidth = quantity(way.rates, f"{stamp}: {what}") or quantity(host.rates, fallback)
    latency = quantity(way.latency_s, f"{stamp}: {what}") or quantity(host.latency_s, fallback)
    if bandwidth is None or latency is None:
        raise NothingMeasuredError("links.pcie: no copy between host and device was measured")
    return {"bandwidth": entry(bandwidth, "bandwidth"), "latency": entry(latency, "seconds")}


def _host_way(copies: Iterable[HostCopies], size_bytes: int) -> _Way:
    way = _Way()
    for each in copies:
        way.rates += rates(size_bytes, (*each.to_device_s, *each.from_device_s))
        way.latency_s += usable(each.latency_s)
    return way


def _pairs_way(found: Measurements, layout: Joined, role: str) -> _Way:
    """Return the copies of pairs over NVLink, per link, within a socket (``near``), or between two (``far``)."""
    way = _Way()
    for pair in found.pairs:
        links = layout.nvlinks.get((min(pair.source, pair.destination), max(pair.source, pair.destination)), 0)
        if role == _role(pair, links, layout):
            count = links if links and not layout.has_switch else 1
            way.rates += [rate / count for rate in rates(found.copy_bytes, pair.seconds)]
            way.latency_s += usable(pair.latency_s)
    return way


def _role(pair: PairCopies, links: int, layout: Joined) -> str:
    if links:
        return "nvlink"
    return "near" if layout.socket_of(pair.source) == layout.socket_of(pair.destination) else "far"


def _uplink_way(found: Measurements, layout: Joined) -> _Way:
    """Return what two devices of one switch get together."""
    way = _Way()
    for each in found.to_all:
        if len(each.devices) == 2 and any(set(each.devices) <= set(members) for members in layout.switches):
            way.rates += rates(2 * found.copy_bytes, each.together_s)
    return way


def at_once_notes(found: Measurements) -> Sequence[str]:
    """Return a note on how the host serves all devices at once, which no link of a machine file shows."""
    devices = len(found.names)
    together = [each for each in found.to_all if len(each.devices) == devices]
    rate = median(rates(devices * found.copy_bytes, together[-1].together_s)) if together else None
    one = median(rates(found.copy_bytes, together[-1].alone_s)) if together else None
    if devices < 2 or rate is None or one is None:
        return ()
    return (f"the host sends {rate / 1e9:.3g} GB/s to all devices at once, {one / 1e9:.3g} GB/s to one alone",)


def broadcast_notes(found: Measurements) -> Sequence[str]:
    """Return a note on NCCL's broadcast, which a projection derives from the all-reduce."""
    if found.collectives is None:
        return ()
    rate = median(rates(found.collectives.large_bytes, found.collectives.broadcast_s))
    size = f"{found.collectives.large_bytes >> 20} MiB"
    return () if rate is None else (f"NCCL's broadcast of {size} reaches {rate / 1e9:.3g} GB/s",)


def overlap_of(layout: Joined, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parts.toml's number for operators beside a collective."""
    part: Mapping[str, Any] = parts["overlap"]["nvlink" if layout.rings_over_nvlink else "pcie"]
    return {**part, "source": f"not measured: dpbench/machines/parts.toml: {part['source']}"}
