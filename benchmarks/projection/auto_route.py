"""The route that `Policy.route` "auto" takes on a described machine: the wrapper's choice, from the file's links."""

from collections import Counter
from collections.abc import Sequence

from dpbench.parallel.policy import Route
from dpbench.parallel.routes.plan import Hop, Links, candidates, choose, hops_of
from dpbench.parallel.routes.probe import PIECE_BYTES
from dpbench.projection.described.machine import Machine

_STAGED = "staged."


def route_on(machine: Machine) -> Route:
    """Return the route for one lane on each device of one machine."""
    return choose(links_on(machine))


def links_on(machine: Machine) -> Links:
    """Return what the wrapper's probe would find: peers, and the seconds of a piece on each candidate route."""
    heads = tuple(range(machine.devices))
    peers = frozenset(
        (one, other)
        for (one, other), names in machine.routes.items()
        if one is not None and other is not None and not any(name.startswith(_STAGED) for name in names)
    )
    links = Links(heads, peers)
    seconds = tuple(
        (route, sum(_phase_s(machine, hops) for hops in hops_of(route, links))) for route in candidates(links)
    )
    return Links(heads, peers, seconds=seconds)


def _phase_s(machine: Machine, hops: Sequence[Hop]) -> float:
    """Return the seconds until copies that start together have ended: those of the busiest link."""
    kinds = {link.name: machine.kinds[link.kind] for link in machine.links}
    sent: Counter[str] = Counter(name for hop in hops for name in machine.routes[hop])
    return max(
        PIECE_BYTES * count / kinds[name].bandwidth.mid + kinds[name].latency.mid for name, count in sent.items()
    )
