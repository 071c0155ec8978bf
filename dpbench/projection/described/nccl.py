"""How long NCCL's collectives take on a described machine. Pure.

NCCL estimates a collective by ``base + steps x hop + bytes / bandwidth`` for each algorithm (ring, tree) and protocol
(LL, LL128, Simple), and takes the fastest. The formulas and the correction of trees are from its src/graph/tuning.cc
(https://github.com/NVIDIA/nccl), read in torch's adaptation, torch/_inductor/comm_analysis.py. Its caps for a channel
are left out: the number of channels is not known here.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.described.machine import Machine

Array = NDArray[np.float64]

PROTOCOLS = ("ll", "ll128", "simple")
_ROUNDS = {"broadcast": 1, "reduce": 1, "all_reduce": 2}  # how often the data goes around the ring

# What share of its bandwidth a tree reaches for messages of 64 B x 2**i, from NCCL's tuning.cc. Full from 1 GiB.
_TREE_CORRECTION = {
    "ll": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1 1",
    "ll128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1 1",
    "simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9 1",
}
_SMALLEST_BYTES = 64


def collective_s(op: str, size_bytes: float, machine: Machine, value: Callable[[str], Array]) -> Array:
    """Return the seconds that a collective among all devices takes, an entry for each draw.

    `op` is ``broadcast``, ``reduce`` or ``all_reduce``; others raise KeyError. `size_bytes` is the size of the tensor
    on one device. `value` returns the draws of a parameter of `Machine.parameters`. A single device needs no time.
    """
    if machine.ring is None:
        return np.zeros_like(value("overlap"))
    times = [_ring_s(_ROUNDS[op], size_bytes, machine, protocol, value) for protocol in _usable(machine, "ring")]
    if op == "all_reduce":
        times += [_tree_s(size_bytes, machine, protocol, value) for protocol in _usable(machine, "tree")]
    found: Array = np.minimum.reduce(times)
    return found


def _ring_s(rounds: int, size_bytes: float, machine: Machine, protocol: str, value: Callable[[str], Array]) -> Array:
    """Return the time of one pipelined round, a broadcast or a reduce, or of two, an all-reduce in chunks."""
    far_steps = rounds * (_machines(machine) - 1)
    steps = rounds * (machine.devices - 1) - far_steps
    latency = value(f"nccl.ring_base_{protocol}") + steps * value(f"nccl.ring_hop_{protocol}")
    if far_steps:
        latency = latency + far_steps * value(f"nccl.ring_network_{protocol}")
    bandwidth = value("ring.bus_bandwidth") * value(f"nccl.ring_share_{protocol}")
    passes = (steps + far_steps) / machine.devices if rounds == 2 else 1.0
    return latency + passes * size_bytes / bandwidth


def _tree_s(size_bytes: float, machine: Machine, protocol: str, value: Callable[[str], Array]) -> Array:
    """Return the time of an all-reduce up and down a tree: chains within machines, a binary tree over the network."""
    machines = _machines(machine)
    chain, levels = machine.devices // machines - 1, machines.bit_length() - 1
    latency = value(f"nccl.tree_base_{protocol}") + 2 * chain * value(f"nccl.tree_hop_{protocol}")
    if levels:
        latency = latency + 2 * levels * value(f"nccl.tree_network_{protocol}")
    bandwidth = value("ring.bus_bandwidth") * value(f"nccl.tree_share_{protocol}") / 2
    return latency + size_bytes / (bandwidth * _tree_correction(protocol, size_bytes))


def _tree_correction(protocol: str, size_bytes: float) -> float:
    """Return the share for a message. Between NCCL's sizes it is interpolated, so that more bytes never take less."""
    shares = [float(share) for share in _TREE_CORRECTION[protocol].split()]
    position = np.log2(max(size_bytes, _SMALLEST_BYTES) / _SMALLEST_BYTES)
    return float(np.interp(position, np.arange(len(shares)), shares))


def _machines(machine: Machine) -> int:
    return 1 if machine.ring is None else machine.ring.machines


def _usable(machine: Machine, algorithm: str) -> list[str]:
    return [protocol for protocol in PROTOCOLS if f"{algorithm}_base_{protocol}" in machine.nccl]
