"""What the wrapper's policy "auto" takes on described machines, by the wrapper's own rules.

python -m dpbench.jobs.ways_child --record-fd N --parent-pid P
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dpbench.engine.child import answer
from dpbench.engine.messages import AutoChoice, AutoChoices, AutoRequest, DescribedLinks
from dpbench.parallel.links import BUCKET_BYTES
from dpbench.parallel.policy import Policy, Route
from dpbench.parallel.routes import Links, candidates, choose, has_pieces, hops_of


def respond(request: AutoRequest) -> AutoChoices:
    return AutoChoices(machines=tuple(map(choice_on, request.machines)))


def choice_on(machine: DescribedLinks) -> AutoChoice:
    links = links_on(machine)
    return AutoChoice(route=choose(links), whole_buckets=not has_pieces(Route.CHAIN, links), dispatches=Policy().ways)


def links_on(machine: DescribedLinks) -> Links:
    """What the wrapper's probe would find. NCCL is no candidate, because it has no projection."""
    names = {(source, destination): links for source, destination, links in machine.hops}
    rates = [
        ((one, other), min(machine.links[name][0] for name in (*names[one, other], *names[other, one])))
        for one, other in sorted(machine.peers)
        if one < other and (other, one) in machine.peers
    ]
    links = Links(tuple(range(machine.devices)), frozenset(machine.peers), rates=tuple(rates))
    seconds = tuple(
        (route, sum(_phase_s(machine, [names[hop] for hop in hops]) for hops in hops_of(route, links)))
        for route in candidates(links)
    )
    return replace(links, seconds=seconds)


def _phase_s(machine: DescribedLinks, copies: Sequence[Sequence[str]]) -> float:
    sent = Counter(name for names in copies for name in names)
    busy_s = []
    for name, count in sent.items():
        bandwidth, latency_s = machine.links[name]
        busy_s.append(BUCKET_BYTES * count / bandwidth + latency_s)
    return max(busy_s)


if __name__ == "__main__":
    answer(respond)
