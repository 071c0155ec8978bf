"""The first devices of a described machine, as a machine. Pure."""

from dataclasses import replace

from dpbench.errors import WrongInputError
from dpbench.projection.machine import Machine, Ring

_NVLINK = "nvlink."


def first_devices(machine: Machine, count: int) -> Machine:
    """Without all but the first `count` devices. Raise WrongInputError for an impossible count.

    Routes and links stay if a copy between the kept devices, or from or to the host, takes them. NCCL's rings get the
    share of the bandwidth that the NVLinks between the kept devices have. Other rings keep theirs.
    """
    if not 1 <= count <= machine.devices:
        raise WrongInputError(f"devices: {count} is not allowed; allowed: 1 to {machine.devices} on {machine.name}")
    if count == machine.devices:
        return machine
    routes = {ends: links for ends, links in machine.routes.items() if all(end is None or end < count for end in ends)}
    used = {link for links in routes.values() for link in links}
    return replace(
        machine,
        name=f"{machine.name}, first {count}",
        devices=count,
        routes=routes,
        links={name: link for name, link in machine.links.items() if name in used},
        ring=_ring(machine, count),
    )


def _ring(machine: Machine, count: int) -> Ring | None:
    if machine.ring is None or count == 1:
        return None
    if machine.ring.machines > 1:
        own = machine.devices // machine.ring.machines
        allowed = f"{machine.devices}, or a machine's file for {own} devices"
        raise WrongInputError(f"devices: {count} of several machines is not allowed; allowed: {allowed}")
    of_all, of_kept = _nvlinks(machine, machine.devices), _nvlinks(machine, count)
    if not of_all:
        return machine.ring
    if not of_kept:
        raise WrongInputError(
            f"devices: NVLink does not join the first {count} of {machine.name}; allowed: a file for {count} devices"
        )
    share = of_kept / of_all
    return replace(machine.ring, bus_bandwidth=machine.ring.bus_bandwidth.times(share))


def _nvlinks(machine: Machine, count: int) -> float:
    """The bytes/s of the NVLinks that the first devices have between them: of the device with the least."""
    direct = dict.fromkeys(range(count), 0.0)
    for (source, destination), links in machine.routes.items():
        ends_kept = source is not None and source < count and destination is not None and destination < count
        if ends_kept and links[0].startswith(_NVLINK):
            direct[source] += machine.links[links[0]].bandwidth.mid  # type: ignore[index]  # its end is kept
    return min(direct.values())
