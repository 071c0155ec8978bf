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
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from dpbench.projection.machine import Link, Table, refuse
from dpbench.text.outside import quoted

Place = int | None
Routes = dict[tuple[Place, Place], tuple[str, ...]]
_Whole = Annotated[int, Field(strict=True)]
_Devices = Annotated[_Whole, Field(ge=1, le=64)]
_LinkCount = Annotated[_Whole, Field(ge=1, le=36)]
_Groups = list[list[_Whole]]
_Joined = list[tuple[_Whole, _Whole, _LinkCount]]


class Layout(Table):
    """How the devices of one machine are joined, and how many such machines there are.

    `switches` has the devices of each PCIe switch; a device on a root port has a switch of its own. `sockets` has the
    switches of each CPU socket. `nvlinks` has pairs of devices and the number of links between them. `nvswitch_links`
    are from each device, 0 without NVSwitch.
    """

    devices: _Devices
    machines: _Devices = 1
    switches: _Groups
    sockets: _Groups
    peer: Annotated[bool, Field(strict=True)]
    nvlinks: _Joined = Field([])
    nvswitch_links: _LinkCount = 0

    @field_validator("switches", "sockets")
    @classmethod
    def _hold_each_once(cls, groups: _Groups, info: ValidationInfo) -> _Groups:
        devices = info.data.get("devices", 0)
        count = devices if info.field_name == "switches" else len(info.data.get("switches", ()))
        if not all(groups) or sorted(member for group in groups for member in group) != list(range(count)):
            members = "devices" if info.field_name == "switches" else "switches"
            allowed = f"lists that hold each of the {members} 0 to {count - 1} once"
            refuse(f"{quoted(groups)} is not allowed; allowed: {allowed}")
        return groups

    @field_validator("nvlinks")
    @classmethod
    def _join_each_pair_once(cls, nvlinks: _Joined, info: ValidationInfo) -> _Joined:
        devices, pairs = range(info.data.get("devices", 0)), set[frozenset[int]]()
        for row in nvlinks:
            pair = frozenset(row[:2])
            if len(pair) < 2 or pair in pairs or not pair <= set(devices):
                allowed = f"two devices of 0 to {len(devices) - 1} and their links, each pair once"
                refuse(f"{quoted(list(row))} is not allowed; allowed: {allowed}")
            pairs.add(pair)
        return nvlinks

    @field_validator("nvswitch_links")
    @classmethod
    def _is_alone(cls, ports: int, info: ValidationInfo) -> int:
        if info.data.get("nvlinks") or info.data.get("devices") == 1:
            refuse(f"{ports} is not allowed beside nvlinks or for one device; allowed: leave it out")
        return ports

    def links_between(self, a: int, b: int) -> int:
        return next((count for one, other, count in self.nvlinks if {one, other} == {a, b}), 0)

    def switch_of(self, device: int) -> int:
        return next(i for i, devices in enumerate(self.switches) if device in devices)

    def socket_of(self, switch: int) -> int:
        return next(i for i, switches in enumerate(self.sockets) if switch in switches)


def routes_of(layout: Layout) -> Routes:
    """For each pair of places the names of links; places are devices of all machines, and None for the host of a
    device.
    """
    places = (None, *range(layout.devices * layout.machines))
    return {(a, b): tuple(_route(layout, a, b)) for a in places for b in places if a != b}


def links_of(layout: Layout, routes: Routes, by_role: Mapping[str, Link]) -> dict[str, Link]:
    """By name. Several NVLinks, between two devices or to NVSwitch, are one link."""
    links = {}
    for name in sorted({name for route in routes.values() for name in route}):
        link, count = by_role[role_of(name)], 1
        if name.startswith("nvswitch"):
            count = layout.nvswitch_links
        elif name.startswith("nvlink"):
            a, b = (int(text) % layout.devices for text in name.partition(".")[2].split("-"))
            count = layout.links_between(a, b)
        links[name] = link.model_copy(update={"bandwidth": link.bandwidth.times(count)})
    return links


def role_of(link: str) -> str:
    """The key of a link in the table ``links`` of a machine's file."""
    role = link.partition(".")[0]
    return "nvlink" if role == "nvswitch" else role


def _route(layout: Layout, source: Place, destination: Place) -> list[str]:
    up, down = _uplinks(layout, source, "up"), _uplinks(layout, destination, "down")[::-1]
    if source is None or destination is None:
        return up + down
    (here, a), (there, b) = divmod(source, layout.devices), divmod(destination, layout.devices)
    if here != there:
        between = [f"network.{here}.out", f"network.{there}.in"]
    elif layout.links_between(a, b):
        return [f"nvlink.{source}-{destination}"]
    elif layout.nvswitch_links:
        return [f"nvswitch.{source}.out", f"nvswitch.{destination}.in"]
    elif not layout.peer:
        between = [f"staged.{source}"]
    elif (switch := layout.switch_of(a)) == (other := layout.switch_of(b)):
        return [up[0], down[-1]]
    else:
        one, two = (here * len(layout.sockets) + layout.socket_of(behind) for behind in (switch, other))
        between = [f"socket.{one}-{two}"] if one != two else []
    return [*up, *between, *down]


def _uplinks(layout: Layout, device: Place, way: str) -> list[str]:
    """From a device to the host's memory. A switch with one device has no link of its own."""
    if device is None:
        return []
    machine, local = divmod(device, layout.devices)
    switch = layout.switch_of(local)
    is_alone = len(layout.switches[switch]) == 1
    shared = [] if is_alone else [f"uplink.{machine * len(layout.switches) + switch}.{way}"]
    return [f"pcie.{device}.{way}", *shared]
