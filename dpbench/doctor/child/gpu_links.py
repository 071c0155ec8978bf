"""Peer access between GPUs, the kind of link, and whether copies arrive intact."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations

import torch

from dpbench.doctor.findings import Finding, note, ok, unreliable
from dpbench.measure.gpu.facts import read_gpu_facts, uuids_of
from dpbench.parallel.links import find_links
from dpbench.parallel.policy import Route
from dpbench.parallel.routes import choose, reason
from dpbench.parallel.transfer import are_sound

_CORRUPT = (
    "dpbench.parallel sends these copies through the host automatically, and all copies under "
    "Policy(host_staged=True). Other libraries do not: set NCCL_P2P_DISABLE=1 for NCCL, and check the IOMMU "
    "(off, or passthrough)"
)

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
_DEFAULT_QUEUES = 8
_MOST_QUEUES = 32


def examine_links(devices: Sequence[torch.device]) -> list[Finding]:
    links = links_by_pair(read_gpu_facts(uuids_of(devices)).links)
    return [
        _of_pair(one, other, links.get((i, j), "unknown"))
        for (i, one), (j, other) in combinations(enumerate(devices), 2)
    ]


def examine_route(devices: Sequence[torch.device]) -> list[Finding]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each pair has a finding of its own
        links = find_links(devices, Route.AUTO, is_staged=False)
    return [ok("route of dpbench.parallel", f"auto takes {choose(links)}: {reason(links)}")]


def examine_connections(devices: int, value: str | None) -> Finding:
    """The tuned wrapper on a star has most streams on the first device: one for each lane, the batch and the caller.

    Values and default are those of the CUDA C++ Programming Guide, Environment Variables.
    """
    streams = devices + 2
    queues = int(value) if value is not None and value.isascii() and value.isdecimal() else 0
    if value is None:
        queues = _DEFAULT_QUEUES
    if not 1 <= queues <= _MOST_QUEUES:
        return note(QUEUES, repr(value), f"allowed: a whole number from 1 to {_MOST_QUEUES}")
    shown = f"{queues} queues{' by default' if value is None else ''}, up to {streams} streams of dpbench.parallel"
    if streams <= queues:
        return ok(QUEUES, shown)
    return note(
        QUEUES, shown, f"streams that share a queue wait for each other; set it to {_MOST_QUEUES} before Python"
    )


def links_by_pair(links: Sequence[str]) -> Mapping[tuple[int, int], str]:
    """Entries are such as ``0-1 NV18``."""
    pairs = (entry.split(" ", 1) for entry in links)
    return {(int(pair.split("-")[0]), int(pair.split("-")[1])): kind for pair, kind in pairs}


def _of_pair(one: torch.device, other: torch.device, link: str) -> Finding:
    what = f"{one} to {other}"
    module = torch.get_device_module(one)
    reached = [bool(module.can_device_access_peer(*pair)) for pair in ((one, other), (other, one))]
    if not any(reached):
        return note(
            what, f"no peer access; link {link}", "copies go through the host's memory, which is slower; NCCL's too"
        )
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        is_sound = are_sound(one, other)
    if corrupt := [warning.message for warning in raised if warning.category is UserWarning]:
        return unreliable(what, f"peer access, link {link}; {corrupt[0]}", _CORRUPT)
    if not is_sound:
        return note(what, f"no peer left, link {link}", "CUDA allows a device eight peers; copies go through the host")
    way = "peer access" if all(reached) else "peer access in one direction only"
    return ok(what, f"{way}, link {link}; copies arrive intact")
