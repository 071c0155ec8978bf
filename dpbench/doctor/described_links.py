"""How the devices of a machine file are joined, from measured copies. Pure.

===================  =================================================================================
``nvlinks``          pairs that NVML calls NV2 and so on; without NVML, pairs much faster than the host
``nvswitch_links``   if a device sends to all others no faster than to one
``switches``         devices to which the host copies no faster at once than one after the other
``sockets``          the NUMA node of each device
``peer``             whether every pair without NVLink has peer access
===================  =================================================================================
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from dpbench.doctor.measured import Measurements, PairCopies, Together
from dpbench.doctor.numbers import median, rates

_SHARED = 1.5
"""Two copies that take so many times the time of one share a link. Apart it is 1, over one link 2."""
_FASTER = 1.5
"""A copy between devices that is so many times faster than the host's is over NVLink, where NVML says nothing."""
_MOST_LINKS = 36

Pair = tuple[int, int]


@dataclass(frozen=True)
class Joined:
    """The layout: `nvlinks` counts links by pair, smaller device first. `has_switch` is NVSwitch in their place."""

    devices: int
    nvlinks: dict[Pair, int]
    has_switch: bool
    switches: tuple[tuple[int, ...], ...]
    sockets: tuple[tuple[int, ...], ...]
    peer: bool

    @property
    def slow_pairs(self) -> list[Pair]:
        """The pairs without NVLink."""
        return [pair for pair in combinations(range(self.devices), 2) if pair not in self.nvlinks]

    @property
    def crosses_sockets(self) -> bool:
        """Whether a copy between devices without NVLink goes from one socket to another."""
        return any(self.socket_of(a) != self.socket_of(b) for a, b in self.slow_pairs)

    @property
    def rings_over_nvlink(self) -> bool:
        """Whether NVLink joins all devices, so that NCCL's rings need nothing else."""
        return self.devices > 1 and len(groups(range(self.devices), self.nvlinks)) == 1

    def socket_of(self, device: int) -> int:
        """Return the socket of a device."""
        switch = next(i for i, members in enumerate(self.switches) if device in members)
        return next(i for i, members in enumerate(self.sockets) if switch in members)


def joined(found: Measurements) -> Joined:
    """Return the layout that the measurements show."""
    devices = len(found.names)
    nvlinks = _nvlinks(found)
    switches = groups(range(devices), _sharing(found.to_all))
    peers = {(pair.source, pair.destination) for pair in found.pairs if pair.is_peer}
    slow = [pair for pair in combinations(range(devices), 2) if pair not in nvlinks]
    return Joined(
        devices=devices,
        nvlinks=nvlinks,
        has_switch=_has_switch(found, nvlinks),
        switches=switches,
        sockets=_sockets(found.numa_nodes, switches),
        peer=all((a, b) in peers and (b, a) in peers for a, b in slow),
    )


def groups(members: Iterable[int], joined_pairs: Iterable[Pair]) -> tuple[tuple[int, ...], ...]:
    """Return the members in groups: those that a chain of pairs joins are in one."""
    found = [{member} for member in members]
    for pair in joined_pairs:
        touched = [group for group in found if group & set(pair)]
        found = [group for group in found if group not in touched] + [set[int]().union(*touched)]
    return tuple(sorted(tuple(sorted(group)) for group in found))


def rate_between(found: Measurements, pair: PairCopies) -> float | None:
    """Return the median bytes/s of a pair's copies."""
    return median(rates(found.copy_bytes, pair.seconds))


def _nvlinks(found: Measurements) -> dict[Pair, int]:
    named = dict(_named_link(text) for text in found.links)
    host = median(rate for copies in found.host_copies for rate in rates(found.copy_bytes, copies.to_device_s))
    links = {}
    for pair in found.pairs:
        key = (min(pair.source, pair.destination), max(pair.source, pair.destination))
        name, rate = named.get(key), rate_between(found, pair)
        if name is not None:
            count = int(name[2:]) if name[:2] == "NV" and name[2:].isdigit() else 0
        else:
            count = int(host is not None and rate is not None and pair.is_peer and rate > _FASTER * host)
        if count and pair.is_peer:
            links[key] = min(count, _MOST_LINKS)
    return dict(sorted(links.items()))


def _named_link(text: str) -> tuple[Pair, str]:
    """Return pair and kind of an entry such as ``0-1 NV18``."""
    pair, _, kind = text.partition(" ")
    a, b = map(int, pair.split("-"))
    return (min(a, b), max(a, b)), kind


def _has_switch(found: Measurements, nvlinks: dict[Pair, int]) -> bool:
    devices = len(found.names)
    if devices < 3 or len(nvlinks) < devices * (devices - 1) // 2 or found.from_first is None:
        return False
    slower = slowdown(found.from_first)
    return slower is not None and slower > _SHARED


def _sharing(copies: Sequence[Together]) -> list[Pair]:
    """Return the pairs of devices that share the way from the host."""
    return [
        (each.devices[0], each.devices[1])
        for each in copies
        if len(each.devices) == 2 and (slowdown(each) or 0.0) > _SHARED
    ]


def slowdown(copies: Together) -> float | None:
    """Return how many times the time of one copy all of them take at once; None if it was not measured."""
    alone, together = median(copies.alone_s), median(copies.together_s)
    return None if alone is None or together is None else together / alone


def _sockets(nodes: Sequence[int | None], switches: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return the switches of each NUMA node. If a node is unknown, there is one socket."""
    if any(node is None for node in nodes):
        return (tuple(range(len(switches))),)
    by_node: dict[int | None, list[int]] = {}
    for i, members in enumerate(switches):
        by_node.setdefault(nodes[members[0]], []).append(i)
    return tuple(map(tuple, by_node.values()))
