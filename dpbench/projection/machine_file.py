"""Described machines as files: `dpbench/machines/*.toml` and the user's own. MODEL.md has an example; its other keys
are::

    machines = 1                            equal ones; may be left out
    nvlinks = [[0, 1, 2]]                   pairs with their number of links; or nvswitch_links = 12, of each device
    [links]                                 pcie, and as needed uplink, socket, nvlink, staged and network
"""

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from dpbench.errors import WrongInputError
from dpbench.projection.machine import (
    Bandwidth,
    Device,
    Host,
    Link,
    Machine,
    Ring,
    Seconds,
    Table,
    part,
    refuse,
)
from dpbench.projection.topology import Layout, links_of, role_of, routes_of
from dpbench.text.outside import one_line, quoted, read_toml
from dpbench.text.validated import Frozen, nearest, one_of, what_is_wrong

_FOLDER = Path(str(files("dpbench"))) / "machines"
_PARTS = "parts"


class _Ring(Table):
    hop: Literal["nvlink", "pcie"]
    bus_bandwidth: Bandwidth
    ll128: object = None
    """Older files have it."""


class _Nccl(Frozen):
    """Constants of NCCL's protocol Simple. Older files have those of others."""

    model_config = ConfigDict(extra="ignore")

    ring_base_simple: Seconds
    ring_nvlink_simple: Seconds
    ring_pcie_simple: Seconds
    ring_network_simple: Seconds


class _File(Layout):
    """Nothing reads `overlap` and `skew` of older files."""

    links: dict[str, Annotated[Link, part("link")]]
    device: Annotated[Device, part("device")]
    host: Annotated[Host, part("host")]
    ring: Annotated[_Ring | None, part("ring"), Field(validate_default=True)] = None
    nccl: Annotated[_Nccl | None, part("nccl"), Field(validate_default=True)] = None
    notes: list[Annotated[str, Field(pattern=r"\S")]] = Field([])
    overlap: object = None
    skew: object = None

    @field_validator("links")
    @classmethod
    def _are_those_of_the_routes(cls, links: dict[str, Link], info: ValidationInfo) -> dict[str, Link]:
        if Layout.model_fields.keys() <= info.data.keys():
            layout = Layout.model_construct(**info.data)
            needed = sorted({role_of(link) for route in routes_of(layout).values() for link in route})
            for role in sorted(links.keys() ^ needed):
                reason = "is missing" if role in needed else "is not allowed: no copy takes it"
                refuse(f"{quoted(role)} {reason}{nearest(role, needed)}; allowed: {one_of(needed)}")
        return links

    @field_validator("ring", "nccl")
    @classmethod
    def _is_there_for_several(cls, value: object, info: ValidationInfo) -> object:
        if value is None and info.data.get("devices", 1) * info.data.get("machines", 1) > 1:
            names = (info.context or {}).get(info.field_name, ())
            refuse(f"is missing; allowed: a table, or one of {one_of(names)}")
        return value

    def machine(self, name: str) -> Machine:
        total, routes, ring = self.devices * self.machines, routes_of(self), None
        if self.ring is not None and self.nccl is not None and total > 1:
            step = self.nccl.ring_nvlink_simple if self.ring.hop == "nvlink" else self.nccl.ring_pcie_simple
            base, far_step = self.nccl.ring_base_simple, self.nccl.ring_network_simple
            ring = Ring(self.ring.bus_bandwidth, self.ring.hop, base, step, far_step, self.machines)
        links = links_of(self, routes, self.links)
        return Machine(name, total, self.device, self.host, links, routes, ring, tuple(self.notes))


def machine_names() -> tuple[str, ...]:
    """The machines that come with dpbench, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml") if path.stem != _PARTS))


def known_parts() -> dict[str, Any]:
    return _read(_FOLDER / f"{_PARTS}.toml")


def load_machine(name_or_path: str) -> Machine:
    """Return a machine that comes with dpbench, or the machine in a file that ends with ``.toml``.

    Raise WrongInputError.
    """
    path, names = Path(name_or_path), machine_names()
    if name_or_path in names:
        path = _FOLDER / f"{name_or_path}.toml"
    elif not name_or_path.endswith(".toml"):
        allowed = f"{one_of(names)}, or a path that ends with .toml"
        reason = f"{quoted(name_or_path)} is unknown{nearest(name_or_path, names)}; allowed: {allowed}"
        raise WrongInputError(one_line(f"machine: {reason}"))
    try:
        return _File.model_validate(_read(path), context=known_parts()).machine(path.stem)
    except ValidationError as error:
        raise WrongInputError(one_line(f"{path}: {what_is_wrong(error)}")) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}; allowed: a TOML file of a machine"
        raise WrongInputError(one_line(f"{path}: {reason}")) from error
    except ValueError as error:
        raise WrongInputError(one_line(f"{path}: is not TOML: {error}")) from error
