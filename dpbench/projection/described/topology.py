"""The links of a described machine, and the links that each copy takes. Pure.

    host memory of the machine
      │ uplink.0.up/.down          one for each PCIe switch with several devices, shared by them
    switch ── switch               socket.0-1: from one CPU socket to the other
      │ pcie.3.up/.down            one for each device
    device 3 ── device 4           nvlink.3-4, or nvswitch.3.out and nvswitch.4.in

A copy takes NVLink only if one joins both devices: NVLink is not routed. Without peer access, a copy passes through
host memory, at the speed of the link ``staged``, one for each source device. Each machine has one network link.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dpbench.projection.described.machine import LinkKind, Quantity

Place = int | None
Routes = dict[tuple[Place, Place], tuple[str, ...]]


@dataclass(frozen=True)
class Layout:
    """How the devices of one machine are joined, and how many such machines there are.

    `switches` has the devices of each PCIe switch; a device on a root port has a switch of its own. `sockets` has the
    switches of each CPU socket. `nvlinks` counts the links between pairs of devices, smaller index first. `ports` is
    the number of links from each device to NVSwitch, 0 without one. `kinds` has the link kind for each of ``pcie``,
    ``uplink``, ``socket``, ``nvlink``, ``staged`` and ``network`` that the machine has.
    """

    devices: int
    machines: int
    switches: tuple[tuple[int, ...], ...]
    sockets: tuple[tuple[int, ...], ...]
    peer: bool
    nvlinks: Mapping[tuple[int, int], int]
    ports: int
    kinds: Mapping[str, str]

    def switch_of(self, device: int) -> int:
        """Return the PCIe switch of a device of one machine."""
        return next(i for i, devices in enumerate(self.switches) if device in devices)

    def socket_of(self, switch: int) -> int:
        """Return the CPU socket of a switch."""
        return next(i for i, switches in enumerate(self.sockets) if switch in switches)


def routes_of(layout: Layout) -> Routes:
    """Return the link names for each pair of places: devices of all machines, and None for the host of a device."""
    total = layout.devices * layout.machines
    routes: Routes = {}
    for device in range(total):
        routes[None, device] = tuple(_to_device(layout, device))
        routes[device, None] = tuple(_from_device(layout, device))
        for other in range(total):
            if device != other:
                routes[device, other] = tuple(_between(layout, device, other))
    return routes


def links_of(
    layout: Layout, routes: Routes, parts: Mapping[str, LinkKind]
) -> tuple[dict[str, str], dict[str, LinkKind]]:
    """Return the kind of each link by its name, and all kinds, from those of single links in `parts`.

    Several NVLinks between two devices, or from one to NVSwitch, are one link with all their bandwidth: ``nvlink2x2``.
    """
    links, kinds = dict[str, str](), dict[str, LinkKind]()
    for name in sorted({name for route in routes.values() for name in route}):
        role, count = role_of(name), 0
        if name.startswith("nvswitch"):
            count = layout.ports
        elif role == "nvlink" and (several := layout.nvlinks[_pair(layout, name)]) > 1:
            count = several
        links[name] = kind = layout.kinds[role] + (f"x{count}" if count else "")
        single = parts[layout.kinds[role]]
        kinds[kind] = LinkKind(_times(single.bandwidth, count), single.latency) if count > 1 else single
    return links, kinds


def role_of(link: str) -> str:
    """Return the key of a link in the table ``links`` of a machine's file."""
    role = link.partition(".")[0]
    return "nvlink" if role == "nvswitch" else role


def _times(quantity: Quantity, count: int) -> Quantity:
    source = f"{count} times: {quantity.source}"
    return Quantity(count * quantity.low, count * quantity.mid, count * quantity.high, source)


def _between(layout: Layout, source: int, destination: int) -> list[str]:
    here, a = divmod(source, layout.devices)
    there, b = divmod(destination, layout.devices)
    if here != there:
        network = [f"network.{here}.out", f"network.{there}.in"]
        return _from_device(layout, source) + network + _to_device(layout, destination)
    if (min(a, b), max(a, b)) in layout.nvlinks:
        return [f"nvlink.{source}-{destination}"]
    if layout.ports:
        return [f"nvswitch.{source}.out", f"nvswitch.{destination}.in"]
    if not layout.peer:
        return [*_from_device(layout, source), f"staged.{source}", *_to_device(layout, destination)]
    from_switch, to_switch = layout.switch_of(a), layout.switch_of(b)
    if from_switch == to_switch:
        return [f"pcie.{source}.up", f"pcie.{destination}.down"]
    from_socket, to_socket = layout.socket_of(from_switch), layout.socket_of(to_switch)
    sockets = len(layout.sockets)
    cross = [f"socket.{here * sockets + from_socket}-{here * sockets + to_socket}"] if from_socket != to_socket else []
    return _from_device(layout, source) + cross + _to_device(layout, destination)


def _from_device(layout: Layout, device: int) -> list[str]:
    return [f"pcie.{device}.up", *(f"{uplink}.up" for uplink in _uplink(layout, device))]


def _to_device(layout: Layout, device: int) -> list[str]:
    return [*(f"{uplink}.down" for uplink in _uplink(layout, device)), f"pcie.{device}.down"]


def _uplink(layout: Layout, device: int) -> list[str]:
    """Return the shared uplink of a device's switch. A switch with one device has none: its link is the device's."""
    machine, local = divmod(device, layout.devices)
    switch = layout.switch_of(local)
    alone = len(layout.switches[switch]) == 1
    return [] if alone else [f"uplink.{machine * len(layout.switches) + switch}"]


def _pair(layout: Layout, name: str) -> tuple[int, int]:
    """Return the devices, within their machine, of a link named ``nvlink.9-8``."""
    a, b = (int(text) % layout.devices for text in name.partition(".")[2].split("-"))
    return min(a, b), max(a, b)
