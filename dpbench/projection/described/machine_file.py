"""Described machines as files: `dpbench/machines/*.toml` and the user's own.

A file has these keys::

    device = "V100-PCIE"                    a part of parts.toml, or a table [device] of the same form
    host = "xeon-2018"                      likewise, as are ring, nccl and the links
    devices = 4                             of one machine
    machines = 1                            equal ones; may be left out
    switches = [[0, 1], [2], [3]]           the devices of each PCIe switch
    sockets = [[0], [1, 2]]                 the switches of each CPU socket
    peer = true                             whether devices reach each other's memory over PCIe
    nvlinks = [[0, 1, 2]]                   pairs with their number of links; or nvswitch_links = 12, of each device
    [links]                                 pcie, and as needed uplink, socket, nvlink, staged and network

A number is ``{ low = 1, mid = 1.5, high = 3, unit = "us", source = "..." }``. `fields.py` lists the units.
"""

from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpbench.cases.explain import nearest, one_of
from dpbench.projection.described.fields import Fields, MachineFileError
from dpbench.projection.described.machine import (
    FLOP_KINDS,
    Device,
    Host,
    HostCost,
    Kind,
    LinkKind,
    Machine,
    Quantity,
    Ring,
)
from dpbench.projection.described.topology import Layout, Routes, links_of, role_of, routes_of
from dpbench.text.outside import one_line, quoted, read_toml

LINK_ROLES = ("pcie", "uplink", "socket", "nvlink", "staged", "network")
_MOST_DEVICES = 64
_MOST_LINKS = 36
_SWITCHES = "a list with the devices of each PCIe switch, each device once"
_SOCKETS = "a list with the switches of each CPU socket, each switch once"
_NVLINKS = f"a list of [device, another device, number of links from 1 to {_MOST_LINKS}], each pair once"


def read_layout(file: Fields, names: Mapping[str, str]) -> Layout:
    """Return the layout in a machine's file. `names` has the link kind of each role. Raise MachineFileError."""
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


def _check_roles(links: Fields, routes: Routes) -> None:
    """Raise if a link kind that a route takes is missing, or if one is there that no route takes."""
    needed = {role_of(name) for route in routes.values() for name in route}
    links.refuse_others()
    for role in sorted(needed - links.table.keys()):
        links.refuse(role, "missing; allowed: the name of a link, or a table with bandwidth and latency")
    for role in sorted(links.table.keys() - needed):
        links.refuse(role, f"no copy takes this link here; allowed: {one_of(sorted(needed))}")


_FOLDER = Path(str(files("dpbench"))) / "machines"
_PARTS = "parts"
_FORMER = ("overlap", "skew", "nccl")
"""Keys that a file may have and nothing reads; `nccl` is read with a ring."""
_PEAKS = ("float32", "tf32", "bfloat16")


def machine_names() -> tuple[str, ...]:
    """Return the names of the machines that come with dpbench, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml") if path.stem != _PARTS))


def known_parts() -> dict[str, Any]:
    """Return the tables of parts.toml."""
    return _read(_FOLDER / f"{_PARTS}.toml").table


def load_machine(name_or_path: str) -> Machine:
    """Return a machine that comes with dpbench, or the machine in a file that ends with ``.toml``.

    Raise MachineFileError.
    """
    if name_or_path in machine_names():
        path = _FOLDER / f"{name_or_path}.toml"
    elif name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        names = machine_names()
        allowed = f"{one_of(names)}, or a path that ends with .toml"
        raise MachineFileError(
            one_line(f"machine: {quoted(name_or_path)} is unknown{nearest(name_or_path, names)}; allowed: {allowed}")
        )
    return _Reader(_read(path), _read(_FOLDER / f"{_PARTS}.toml")).machine(path.stem)


def _read(path: Path) -> Fields:
    try:
        return Fields(str(path), "", read_toml(path))
    except OSError as error:
        raise MachineFileError(
            one_line(f"{path}: cannot be read: {error.strerror}; allowed: a TOML file of a machine")
        ) from error
    except ValueError as error:
        raise MachineFileError(one_line(f"{path}: is not TOML: {error}")) from error


class _Reader:
    """One machine's file, and the parts that it may name."""

    def __init__(self, file: Fields, parts: Fields) -> None:
        self.file = file
        self.parts = parts

    def machine(self, name: str) -> Machine:
        file = self.file
        links = file.below("links")
        layout = read_layout(file, self._link_names(links))
        routes = routes_of(layout)
        _check_roles(links, routes)
        device, host = self._device(), self._host()
        kinds = {layout.kinds[role]: self._link(links, role) for role in layout.kinds}
        names, kinds = links_of(layout, routes, kinds)
        ring = self._ring(layout.machines) if layout.devices * layout.machines > 1 else None
        for key in _FORMER:
            file.has(key)
        found = Machine(
            name=name,
            devices=layout.devices * layout.machines,
            device=device,
            host=host,
            links=names,
            kinds=kinds,
            routes=routes,
            ring=ring,
            notes=file.texts("notes") if file.has("notes") else (),
        )
        file.refuse_others()
        return found

    def _part(self, fields: Fields, key: str, kind: str) -> tuple[str, Fields]:
        """Return the name and the table of a part: one of `parts`, or a table in the file itself, named as its key."""
        known = self.parts.table[kind]
        value = fields.get(key, f"a table, or one of {one_of(known)}")
        if isinstance(value, dict):
            return key, fields.below(key)
        name = fields.name(key, known)
        return name, self.parts.below(kind).below(name)

    def _quantity(self, fields: Fields, key: str, kind: str, dimension: str) -> Quantity:
        """Return a number that a file names, one of the parts `kind`, or holds."""
        parts = self.parts.below(kind)
        if isinstance(fields.get(key, f"a table, or one of {one_of(parts.table)}"), str):
            return parts.quantity(fields.name(key, parts.table), dimension)
        return fields.quantity(key, dimension)

    def _device(self) -> Device:
        name, fields = self._part(self.file, "device", "device")
        peak = fields.below("peak")
        peaks = {dtype: peak.quantity(dtype, "flops") for dtype in _PEAKS if dtype == _PEAKS[0] or peak.has(dtype)}
        peak.refuse_others()
        _, efficiency = self._part(fields, "efficiency", "efficiency")
        device = Device(
            name=name,
            memory_bytes=fields.quantity("memory", "bytes").mid,
            peaks=peaks,
            bandwidth=fields.quantity("bandwidth", "bandwidth"),
            flop_efficiency=_shares(efficiency.below("flop"), FLOP_KINDS),
            byte_efficiency=_shares(efficiency.below("byte"), tuple(Kind)),
            gap=self._quantity(fields, "gap", "gap", "seconds"),
            factor=self._quantity(fields, "factor", "board", "ratio"),
        )
        efficiency.refuse_others()
        fields.refuse_others()
        return device

    def _host(self) -> Host:
        name, fields = self._part(self.file, "host", "host")
        _, costs = self._part(fields, "costs", "costs")
        host = Host(
            name=name,
            costs={cost: costs.quantity(cost, "seconds") for cost in HostCost},
            factor=fields.quantity("factor", "ratio"),
        )
        costs.refuse_others()
        fields.refuse_others()
        return host

    def _link_names(self, links: Fields) -> dict[str, str]:
        return {role: self._part(links, role, "link")[0] for role in LINK_ROLES if links.has(role)}

    def _link(self, links: Fields, role: str) -> LinkKind:
        _, fields = self._part(links, role, "link")
        kind = LinkKind(fields.quantity("bandwidth", "bandwidth"), fields.quantity("latency", "seconds"))
        fields.refuse_others()
        return kind

    def _ring(self, machines: int) -> Ring:
        """Return the ring. Of NCCL's protocols only the constants of Simple are read."""
        _, fields = self._part(self.file, "ring", "ring")
        _, constants = self._part(self.file, "nccl", "nccl")
        hop = fields.name("hop", ("nvlink", "pcie"))
        base, step, far_step = (constants.quantity(f"ring_{end}_simple", "seconds") for end in ("base", hop, "network"))
        fields.has("ll128")
        ring = Ring(fields.quantity("bus_bandwidth", "bandwidth"), hop, base, step, far_step, machines)
        fields.refuse_others()
        return ring


def _shares(fields: Fields, kinds: Collection[Kind]) -> dict[Kind, Quantity]:
    found = {kind: fields.quantity(kind, "ratio") for kind in kinds}
    for kind, share in found.items():
        if share.high > 1:
            fields.refuse_value(f"{kind}.high", share.high, "a share above 0, at most 1")
    for kind in Kind:
        fields.has(kind)  # older files have shares that nothing reads
    fields.refuse_others()
    return found
