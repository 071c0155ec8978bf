"""Tests and measurements of links and routes.

Copies that share a link slow each other down. So the probe starts all copies of a route together, as buckets in a row
keep all its links busy. The clock times the host, which issues the copies, and events time the devices::

    host        issue │ issue  issue  issue │
    streams           copies │ copies  copies  copies │
                           begin                     end

A step takes the longer of the two times. The devices' is measured with pieces that take longer than their issue, and is
converted.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.parallel.lanes import Stream, heads_of, use_stream, wait_for_all, wait_stream
from dpbench.parallel.policy import DEFAULT_POLICY, MIB, Route
from dpbench.parallel.routes import Hop, Links, Rates, Seconds, candidates, hops_of, parents_of
from dpbench.parallel.transfer import MOST_PEERS, are_peers, broadcast_by_nccl, is_sound, sum_by_nccl, why_unsupported

BUCKET_BYTES = DEFAULT_POLICY.bucket_bytes
PIECE_BYTES = 32 * MIB
ROUNDS = 3


class ProbeWork(NamedTuple):
    devices: list[torch.device]
    streams: list[Stream]
    issue: Callable[[], object]


class ProbeTimes(NamedTuple):
    host_s: float
    device_s: float

    @property
    def bucket_s(self) -> float:
        return max(self.host_s, self.device_s * BUCKET_BYTES / PIECE_BYTES)


@cache
def measure(devices: tuple[torch.device, ...], hops: tuple[tuple[Route, tuple[tuple[Hop, ...], ...]], ...]) -> Seconds:
    """The seconds of a bucket of weights and of gradients on each route; empty on devices that measure no times.

    `hops` has the values of `hops_of`. A route that fails has no seconds, such as one by NCCL without shared memory, or
    one without enough memory.
    """
    if not has_times(devices[0]):
        return ()
    seconds = []
    with torch.inference_mode(False), torch.no_grad():
        for route, phases in hops:
            try:
                works = _nccl_work(devices) if route is Route.NCCL else [_copies(devices, phase) for phase in phases]
                seconds.append((route, sum(times(work).bucket_s for work in works)))
            except RuntimeError:
                continue
    return tuple(seconds)


@cache
def rate_between(one: torch.device, other: torch.device) -> float | None:
    """The bytes a second in the slower direction; None if it cannot be measured."""
    if not has_times(one):
        return None
    with torch.inference_mode(False), torch.no_grad():
        try:
            return min(PIECE_BYTES / times(_copies((one, other), [hop])).device_s for hop in ((0, 1), (1, 0)))
        except RuntimeError:  # not enough memory
            return None


@cache
def has_times(device: torch.device) -> bool:
    """Whether the device's events measure times; simulated devices' do not."""
    if device.type == "cpu":
        return False
    module = torch.get_device_module(device)
    first, second = (module.Event(enable_timing=True) for _ in range(2))
    stream = module.current_stream(device)
    first.record(stream)
    second.record(stream)
    second.synchronize()
    try:
        first.elapsed_time(second)
    except NotImplementedError:
        return False
    return True


def times(work: ProbeWork, clock: Callable[[], float] = time.perf_counter) -> ProbeTimes:
    """The times of a round, after one that warms up and keeps the devices busy until the next is issued."""
    first, *other_streams = work.streams
    module = torch.get_device_module(work.devices[0])
    begin, end = (module.Event(enable_timing=True) for _ in range(2))
    wait_for_all(work.devices)
    work.issue()
    for stream in other_streams:
        wait_stream(first, stream)
    begin.record(first)
    for stream in other_streams:
        stream.wait_event(begin)
    moments = [clock()]
    for _ in range(ROUNDS):
        work.issue()
        moments.append(clock())
    for stream in other_streams:
        wait_stream(first, stream)
    end.record(first)
    end.synchronize()
    host_s = min(after - before for before, after in pairwise(moments))
    return ProbeTimes(host_s, 1e-3 * begin.elapsed_time(end) / ROUNDS)


def _copies(devices: Sequence[torch.device], phase: Sequence[Hop]) -> ProbeWork:
    sources = {source: _memory(devices, source) for source, _ in phase}
    copies = [(_memory(devices, destination), sources[source]) for source, destination in phase]
    owners = [piece.device for _, piece in copies]
    streams = _new_streams(owners)

    def issue() -> None:
        for stream, device, (into, piece) in zip(streams, owners, copies, strict=True):
            with use_stream(device, stream):
                into.copy_(piece, non_blocking=True)

    return ProbeWork(owners, streams, issue)


def _nccl_work(devices: Sequence[torch.device]) -> list[ProbeWork]:
    flats, streams, owners = [_memory(devices, end) for end in range(len(devices))], _new_streams(devices), [*devices]
    numbers = [flat.view(torch.float32) for flat in flats]
    return [
        ProbeWork(owners, streams, lambda: broadcast_by_nccl(flats, streams)),
        ProbeWork(owners, streams, lambda: sum_by_nccl(numbers, streams)),
    ]


def _new_streams(devices: Sequence[torch.device]) -> list[Stream]:
    return [torch.get_device_module(device).Stream(device) for device in devices]


def _memory(devices: Sequence[torch.device], end: int) -> Tensor:
    return torch.empty(PIECE_BYTES, dtype=torch.uint8, device=devices[end])


def find_links(devices: Sequence[torch.device], route: Route, is_staged: bool) -> Links:
    """Test the links of the route's plan, and measure a chain's.

    If one of them is unsound or slow, the plan may change, and its new links are tested. Other links are tested by
    their first copy. So the plan's links are the first of the few peers that a device may have.
    """
    heads = heads_of(devices)
    numbers = sorted(set(heads))
    if is_staged or len(numbers) == 1 or route is Route.NCCL:
        return Links(heads, frozenset())
    peers = [(one, other) for one, other in permutations(numbers, 2) if are_peers(devices[one], devices[other])]
    links = Links(heads, frozenset(peers), has_nccl=route is Route.AUTO and why_unsupported(devices, is_staged) is None)
    while True:
        parents = parents_of(route, links)
        hops = {(heads[parent], head) for head, parent in enumerate(parents) if heads[head] == head != 0}
        tested = {*hops, *[(head, parent) for parent, head in hops]}
        corrupt = {(one, other) for one, other in tested if not is_sound(devices[one], devices[other])}
        extended = replace(links, corrupt=links.corrupt | corrupt)
        if any(parents) and route in (Route.AUTO, Route.CHAIN):  # a chain, which may have a choice of links
            extended = replace(extended, rates=_rates(devices, hops, extended))
        if extended == links:
            break
        links = extended
    if route is not Route.AUTO or len(numbers) <= 2:
        return links
    # A star that is not needed would take the peers that others may need, if a device cannot have them all.
    tried = [route for route in candidates(links) if route is not Route.STAR or len(numbers) <= 1 + MOST_PEERS]
    measured = tuple([(route, hops_of(route, links)) for route in tried])
    return replace(links, seconds=measure(tuple(devices), measured)) if len(measured) > 1 else links


def _rates(devices: Sequence[torch.device], hops: Iterable[tuple[int, int]], links: Links) -> Rates:
    pairs = {(min(hop), max(hop)) for hop in hops if links.are_fast(*hop)}
    measured = {(one, other): rate_between(devices[one], devices[other]) for one, other in pairs}
    return tuple(sorted({**dict(links.rates), **{pair: rate for pair, rate in measured.items() if rate}}.items()))
