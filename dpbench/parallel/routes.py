"""Routes: the parent of each lane. The pictures have eight devices with a lane each::

    star     0 ─┬─> 1      one hop; lane 0 sends everything seven times
                ├─> 2
                ...
                └─> 7

    chain    0 ──> 1 ──> 2 ──> 3 ──> 4 ──> 5 ──> 6 ──> 7      no device sends anything twice; seven hops

    nccl     0, 1, ... 7 call NCCL together; it chooses the links, and the order of additions. A star for fewer lanes

A lane passes a bucket, or a piece of a large one, on as soon as it has it::

    0 ──> 1      b0  b1  b2  b3
    1 ──> 2          b0  b1  b2  b3
    2 ──> 3              b0  b1  b2  b3

Except in a star, lanes on one device get one copy over a link. The first of them is the link's end, and the parent of
the others::

    devices 0 1 1 2      chain    0 ──> 1 ──> 3
                                        └ 2
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from dpbench.parallel.policy import Route

PIECE_BYTES = 4 * 1024 * 1024
ISSUE_S = 25e-6
"""The host's time for a copy, two events and two waits."""

Hop = tuple[int, int]
Seconds = tuple[tuple[Route, float], ...]
"""The seconds that a bucket of weights and gradients takes on a route."""
Rates = tuple[tuple[tuple[int, int], float], ...]
"""The bytes a second between two devices, the lower number first."""
FASTER = 0.9
"""Another route must stay below this part of the usual one's seconds, because of noise."""
ALIKE = 0.8
"""Links are alike if the slower one has at least this part of the faster one's bytes a second."""


@dataclass(frozen=True, slots=True)
class Links:
    """``heads[i]`` is the first lane on the device of lane i, and stands for it. `peers` and `corrupt` hold pairs
    (source, destination). `seconds` and `rates` are measured, or empty; `rates` are those of the slower direction.
    """

    heads: tuple[int, ...]
    peers: frozenset[tuple[int, int]]
    corrupt: frozenset[tuple[int, int]] = frozenset()
    seconds: Seconds = ()
    rates: Rates = ()
    has_nccl: bool = False

    def are_sound(self, one: int, other: int) -> bool:
        return self.corrupt.isdisjoint({(one, other), (other, one)})

    def are_fast(self, one: int, other: int) -> bool:
        """Whether copies in both directions are direct and sound."""
        return self.are_sound(one, other) and self.peers >= {(one, other), (other, one)}

    def first(self, count: int) -> "Links":
        return replace(self, heads=self.heads[:count])


def choose(links: Links) -> Route:
    """The route that "auto" takes: the fastest measured candidate, else the usual one."""
    usual, *other_routes = candidates(links)
    seconds = dict(links.seconds)
    if usual in seconds:
        fastest = min(filter(seconds.__contains__, other_routes), key=seconds.__getitem__, default=usual)
        if seconds[fastest] < FASTER * seconds[usual]:
            return fastest
    return usual


def candidates(links: Links) -> tuple[Route, ...]:
    """The routes that "auto" may take, the usual one first."""
    if len(links.heads) <= 2:
        return (Route.STAR,)
    nccl = (Route.NCCL,) if links.has_nccl and not links.corrupt else ()
    if _path(links, links.are_fast) is not None:
        return Route.CHAIN, Route.STAR, *nccl
    heads = set(links.heads)
    has_peers = any(one in heads and other in heads for one, other in links.peers)
    return Route.STAR, *(() if has_peers or len(heads) <= 2 else (Route.CHAIN,)), *nccl


def reason(links: Links) -> str:
    chosen = choose(links)
    seconds = dict(links.seconds)
    if chosen in seconds and len(seconds) > 1:
        times = ", ".join(f"{route} {1e3 * second:.3g} ms" for route, second in links.seconds)
        return f"measured for a bucket of weights and gradients: {times}"
    if chosen is Route.CHAIN:
        return "peers with sound links form a chain"
    return "there are two lanes at most" if len(links.heads) <= 2 else "peers with sound links form no chain"


def hops_of(route: Route, links: Links) -> tuple[tuple[Hop, ...], ...]:
    """The copies of weights, and those of gradients, that run at the same time."""
    parents = parents_of(route, links)
    heads = links.heads
    down = tuple((heads[parents[lane]], lane) for lane in range(1, len(heads)) if heads[lane] not in (0, *heads[:lane]))
    return down, tuple((lane, parent) for parent, lane in down)


def parents_of(route: Route, links: Links) -> tuple[int, ...]:
    """The parent of each lane; 0 for lane 0 itself.

    A chain is the one with the fastest slowest link, since all links carry the same bytes. If peers with sound links
    form none, it avoids corrupting links.
    """
    if route is Route.AUTO:
        route = choose(links)
    if route in (Route.STAR, Route.NCCL):
        return (0,) * len(links.heads)
    devices = tuple(dict.fromkeys(links.heads))
    devices = _fastest_path(links) or _path(links, links.are_sound) or devices
    above = dict(zip(devices[1:], devices, strict=False))
    return tuple(head if head != lane else above.get(lane, 0) for lane, head in enumerate(links.heads))


@cache
def downwards(parents: tuple[int, ...]) -> tuple[int, ...]:
    """All lanes, each behind its parent."""
    order = [0]
    for lane in order:
        order += children_of(lane, parents)
    return tuple(order)


def children_of(lane: int, parents: Sequence[int]) -> tuple[int, ...]:
    return tuple(child for child, parent in enumerate(parents) if parent == lane and child != 0)


def has_pieces(route: Route, links: Links) -> bool:
    """Whether a piece takes longer than its issue on the slowest link; True if none was measured."""
    parents, rates = parents_of(route, links), dict(links.rates)
    pairs = [(links.heads[parent], links.heads[lane]) for lane, parent in enumerate(parents)]
    known_rates = [rate for pair in pairs if (rate := rates.get((min(pair), max(pair))))]
    return not known_rates or ISSUE_S * min(known_rates) < PIECE_BYTES


def piece_items(item_bytes: int) -> int:
    return max(1, PIECE_BYTES // item_bytes)


def _fastest_path(links: Links) -> tuple[int, ...] | None:
    """An unmeasured link counts as the fastest: a plan that takes it has it measured."""
    rates = {pair: rate for pair, rate in links.rates if links.are_fast(*pair)}
    most = max(rates.values(), default=0.0)

    def are_good(least: float, one: int, other: int) -> bool:
        return links.are_fast(one, other) and rates.get((min(one, other), max(one, other)), most) >= ALIKE * least

    paths = (_path(links, partial(are_good, least)) for least in sorted({*rates.values(), 0.0}, reverse=True))
    return next(filter(None, paths), None)


def _path(links: Links, are_good: Callable[[int, int], bool]) -> tuple[int, ...] | None:
    """The first order of all devices in which every hop is good; None without one."""
    devices = tuple(dict.fromkeys(links.heads))

    @cache  # what can follow depends on the last device and the remaining ones only
    def rest(last: int, remaining: frozenset[int]) -> tuple[int, ...] | None:
        if not remaining:
            return ()
        for device in devices:
            if device in remaining and are_good(last, device):
                behind = rest(device, remaining - {device})
                if behind is not None:
                    return (device, *behind)
        return None

    following = rest(devices[0], frozenset(devices[1:]))
    return None if following is None else (devices[0], *following)
