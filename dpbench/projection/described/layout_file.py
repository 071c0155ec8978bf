"""The part of a machine's file that says how its devices are joined."""

from collections.abc import Mapping

from dpbench.projection.described.fields import Fields
from dpbench.projection.described.topology import Layout
from dpbench.sweep.explain import one_of

LINK_ROLES = ("pcie", "uplink", "socket", "nvlink", "staged", "network")
_MOST_DEVICES = 64
_MOST_LINKS = 36
_SWITCHES = "a list with the devices of each PCIe switch, each device once"
_SOCKETS = "a list with the switches of each CPU socket, each switch once"
_NVLINKS = f"a list of [device, another device, number of links from 1 to {_MOST_LINKS}], each pair once"


def read_layout(file: Fields, links: Fields, names: Mapping[str, str]) -> Layout:
    """Return the layout in a machine's file. `names` has the link kind for each key of the table `links`.

    Raise MachineFileError. A link kind that no route takes is refused too.
    """
    devices = file.whole("devices", 1, _MOST_DEVICES)
    layout = Layout(
        devices=devices,
        machines=file.whole("machines", 1, _MOST_DEVICES) if file.has("machines") else 1,
        switches=_groups(file, "switches", devices, "device", _SWITCHES),
        sockets=_groups(file, "sockets", len(file.table["switches"]), "switch", _SOCKETS),
        peer=file.flag("peer"),
        nvlinks=_nvlinks(file, devices) if file.has("nvlinks") else {},
        ports=file.whole("nvswitch_links", 1, _MOST_LINKS) if file.has("nvswitch_links") else 0,
        kinds=dict(names),
    )
    if layout.nvlinks and layout.ports:
        file.refuse("nvlinks", "not allowed beside nvswitch_links; allowed: one of them")
    if devices == 1 and layout.ports:
        file.refuse("nvswitch_links", "not allowed for one device; allowed: leave it out")
    _check_roles(links, layout)
    return layout


def _groups(file: Fields, key: str, count: int, member: str, allowed: str) -> tuple[tuple[int, ...], ...]:
    """Return lists that hold each of `count` members once."""
    rows = file.rows(key, allowed)
    seen = set[int]()
    for row in rows:
        if not row:
            file.refuse(key, f"an empty list is not allowed; allowed: {allowed}")
        for each in row:
            if not 0 <= each < count:
                file.refuse(key, f"{member} {each} is unknown; allowed: 0 to {count - 1}")
            if each in seen:
                file.refuse(key, f"{member} {each} is there twice; allowed: {allowed}")
            seen.add(each)
    missing = sorted(set(range(count)) - seen)
    if missing:
        file.refuse(key, f"{member} {missing[0]} is missing; allowed: {allowed}")
    return tuple(map(tuple, rows))


def _nvlinks(file: Fields, devices: int) -> dict[tuple[int, int], int]:
    found = dict[tuple[int, int], int]()
    for row in file.rows("nvlinks", _NVLINKS):
        if len(row) != 3 or not 1 <= row[2] <= _MOST_LINKS:
            file.refuse_value("nvlinks", row, _NVLINKS)
        a, b, count = row
        for each in (a, b):
            if not 0 <= each < devices:
                file.refuse("nvlinks", f"device {each} of {row} is unknown; allowed: 0 to {devices - 1}")
        if a == b:
            file.refuse("nvlinks", f"{row} joins device {a} with itself; allowed: {_NVLINKS}")
        pair = (min(a, b), max(a, b))
        if pair in found:
            file.refuse("nvlinks", f"pair {list(pair)} is there twice; allowed: {_NVLINKS}")
        found[pair] = count
    return found


def _check_roles(links: Fields, layout: Layout) -> None:
    """Raise if a link kind that the layout needs is missing, or if one is there that no route takes."""
    needed = {"pcie"}
    if any(len(devices) > 1 for devices in layout.switches):
        needed.add("uplink")
    fast = bool(layout.ports)
    joined = fast or len(layout.nvlinks) == layout.devices * (layout.devices - 1) // 2
    if layout.nvlinks or fast:
        needed.add("nvlink")
    if not joined:
        needed |= _slow_roles(layout)
    if layout.machines > 1:
        needed.add("network")
    links.refuse_others()
    for role in sorted(needed - links.table.keys()):
        links.refuse(role, "missing; allowed: the name of a link, or a table with bandwidth and latency")
    for role in sorted(links.table.keys() - needed):
        links.refuse(role, f"no copy takes this link here; allowed: {one_of(sorted(needed))}")


def _slow_roles(layout: Layout) -> set[str]:
    """Return the roles of links that only a copy between devices without NVLink takes."""
    if not layout.peer:
        return {"staged"}
    socket = {d: layout.socket_of(layout.switch_of(d)) for d in range(layout.devices)}
    pairs = ((a, b) for a in socket for b in range(a) if (b, a) not in layout.nvlinks)
    return {"socket"} if any(socket[a] != socket[b] for a, b in pairs) else set()
