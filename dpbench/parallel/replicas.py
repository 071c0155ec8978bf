"""One replica of the base per lane: shells that are built once and refreshed every forward.

Nothing of a shell's state lives from one forward to the next. Before a forward each shell's ``__dict__`` is
copied anew from its module in the base, so that hooks, flags and attributes are the present ones; after it
the shells are emptied, and what the forward wrote is gone. A shell that anything else still refers to, as a
checkpoint waiting in a graph or a hook does, is neither refreshed nor emptied: reference counts tell, and
another set of shells serves instead.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dpbench.parallel.broadcast import Broadcast
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.policy import DEFAULT_POLICY, Policy
from dpbench.parallel.shells import Shells
from dpbench.parallel.tree import Tree, check_replicatable

MAX_SETS = 8
"""Sets kept by one wrapper: as many forwards may wait for their backward with shells in use, and still be quick."""


class ReplicaSet:
    """Shells and received tensors of all lanes; lanes are added when first needed."""

    def __init__(self, tree: Tree, devices: Sequence[torch.device], policy: Policy) -> None:
        self._tree = tree
        self._devices = list(devices)
        self._broadcast = Broadcast(tree.tensors, policy)
        self._lanes: list[Shells] = []

    def is_idle(self) -> bool:
        return all(shells.is_idle() for shells in self._lanes)

    def claim(self, count: int) -> list[Any]:
        """References that keep the first `count` lanes from being idle."""
        while len(self._lanes) < count:
            self._lanes.append(Shells(self._tree))
        return [shells.root for shells in self._lanes[:count]]

    def refresh(self, count: int) -> list[nn.Module]:
        for shells in self._lanes:
            # Weights of the last forward, if still here, would keep their memory from being written again.
            shells.empty()
        tensors = self._broadcast.hand_out(self._tree.tensors, self._devices[:count])
        return [shells.refresh(values) for shells, values in zip(self._lanes, tensors, strict=False)]

    def empty(self) -> None:
        for shells in self._lanes:
            shells.empty()


class ReplicaPool:
    """The sets of one wrapper. A forward takes an idle one; it is idle again when nothing refers to its shells."""

    def __init__(self, devices: Sequence[torch.device], policy: Policy) -> None:
        self.devices = list(devices)
        self._policy = policy
        self._lock = threading.Lock()
        self._tree: Tree | None = None
        self._sets: list[ReplicaSet] = []

    def tree_of(self, base: nn.Module) -> Tree:
        """What `base` is made of now."""
        tree = self._tree
        if tree is None or tree.root is not base or not tree.is_current():
            with self._lock:
                self._tree = tree = Tree(base)
                self._sets = []
        return tree

    def replicas(self, base: nn.Module, count: int) -> list[nn.Module]:
        """Replicas of `base` on the first `count` devices, with its present values and state."""
        tree = self.tree_of(base)
        with self._lock:
            chosen = next((replica_set for replica_set in self._sets if replica_set.is_idle()), None)
            if chosen is None:
                check_replicatable(base)
                chosen = ReplicaSet(tree, self.devices, self._policy)
                if self._policy.cache_replicas and _COUNTS_ARE_EXACT and self._tree is tree:
                    self._sets = [*self._sets[-MAX_SETS + 1 :], chosen]
            claim = chosen.claim(count)
        try:
            return chosen.refresh(count)
        finally:
            del claim

    def empty_idle(self) -> None:
        """Lets go of what the last forwards left in shells that nothing refers to."""
        with self._lock:
            for replica_set in self._sets:
                if replica_set.is_idle():
                    replica_set.empty()


def replicate(network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False) -> list[nn.Module]:
    """New replicas of `network`, one per device; the first shares its memory. `network` must be on ``devices[0]``.

    Nothing refreshes them later: they are a snapshot. With `detach` gradients do not lead back to `network`.
    """
    if not devices:
        return []
    resolved = [resolve_device(device) for device in devices]
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        return ReplicaPool(resolved, DEFAULT_POLICY).replicas(network, len(resolved))


def _has_exact_reference_counts() -> bool:
    """Not so without the GIL (PEP 703: counts of shared objects are split and deferred); then nothing is cached."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


_COUNTS_ARE_EXACT = _has_exact_reference_counts()
