"""One replica of the base per lane: shells that are built once and refreshed every forward.

Nothing of a shell's state lives from one forward to the next. Before a forward each shell's ``__dict__`` is
filled anew from its module in the base, so that hooks, flags and attributes are the present ones; after it
the shells are emptied, and what the forward wrote is gone. A shell that anything else still refers to, as a
checkpoint waiting in a graph or a hook does, is neither refreshed nor emptied: reference counts tell, and
another set of shells serves instead.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dpbench.parallel.broadcast import Broadcaster
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.lanes import Lane, SideStreams, wait_stream
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.policy import DEFAULT_POLICY, Policy, check_policy
from dpbench.parallel.replicatable import are_on, check_device, check_replicatable
from dpbench.parallel.shells import Shells, states_of
from dpbench.parallel.unchanged import ChangeWatch

_FAKE = torch._C._TorchDispatchModeKey.FAKE
MAX_SETS = 8
"""Sets kept by one wrapper: as many forwards may wait for their backward with shells in use, and still be quick."""
MAX_CUSTOM_SETS = 2
"""Where modules replicate in a way of their own: it may leave cycles, in use until the collector comes."""


class ReplicaSet:
    """Shells and received tensors of all lanes; lanes are added when first needed."""

    def __init__(self, tree: ModuleTree, policy: Policy, watch: ChangeWatch | None) -> None:
        check_replicatable(tree)
        self.tree = tree
        self._broadcast = Broadcaster(tree, policy, watch)
        self.has_overlap = self._broadcast.has_overlap
        self._shells: list[Shells] = []

    def is_idle(self) -> bool:
        return all(shells.is_idle() for shells in self._shells)

    def claim(self, count: int) -> list[Any]:
        """References that keep the first `count` lanes from being idle."""
        while len(self._shells) < count:
            self._shells.append(Shells(self.tree))
        return [shells.root for shells in self._shells[:count]]

    def refresh(self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane]) -> list[nn.Module]:
        self.empty()  # weights of the last forward, if still here, would keep their memory from being used again
        deliveries = self._broadcast.broadcast(lanes, reduce_lanes)
        states = states_of(self.tree)
        return [shells.refresh(states, delivery) for shells, delivery in zip(self._shells, deliveries, strict=False)]

    def empty(self) -> None:
        for shells in self._shells:
            shells.empty()


class ReplicaPool:
    """The sets of one wrapper. A forward takes an idle one; it is idle again when nothing refers to its shells."""

    def __init__(self, devices: Sequence[torch.device], policy: Policy) -> None:
        self.devices = list(devices)
        self.streams = SideStreams(devices, policy.host_staged)
        self._policy = policy
        self._has_links = any(device != devices[0] for device in devices)
        self._watch = ChangeWatch() if policy.skip_unchanged else None
        self._lock = threading.Lock()
        self._tree: ModuleTree | None = None
        self._sets: list[ReplicaSet] = []

    def tree_of(self, base: nn.Module) -> ModuleTree:
        """What `base` is made of now."""
        tree = self._tree
        return tree if tree is not None and tree.root is base and tree.is_current() else self._read(base)

    def check_device(self, base: nn.Module) -> None:
        """Raises RuntimeError unless all of the base is on the first device."""
        tree = self._tree
        if (
            tree is None
            or tree.root is not base
            or not tree.has_same_members()
            or not are_on(self.devices[0], tree.tensors)  # or so it seems
        ):
            check_device(self._read(base).tensors, self.devices[0])

    def _read(self, base: nn.Module) -> ModuleTree:
        tree = ModuleTree(base)
        if self._is_kept(tree):
            with self._lock:
                self._tree, self._sets = tree, []
        return tree

    def _is_kept(self, tree: ModuleTree) -> bool:
        """Not what comes with new weights every time: a replica of a wrapper around this one, or a base whose tables
        hold what is no parameter, for the length of a ``torch.func.functional_call``.
        """
        weights = (tree.tensors[i] for node in tree.nodes if node.is_plain for _, i in node.parameters if i is not None)
        return (
            self._policy.cache_replicas
            and _COUNTS_ARE_EXACT
            and "_is_replica" not in tree.root.__dict__
            and all(isinstance(weight, nn.Parameter) for weight in weights)
        )

    def replicas(self, base: nn.Module, count: int) -> list[nn.Module]:
        """Replicas of `base` on the first `count` devices, with its present values and state."""
        chosen, claim = self._claim(self.tree_of(base), count)
        # One bucket on one device: nothing to overlap, and beside the compute the engine makes an event per gradient.
        is_apart = self._has_links or chosen.has_overlap
        lanes = self.streams.lanes(count, self._policy.overlap_broadcast and is_apart)
        reduce_lanes = self.streams.lanes(count, self._policy.overlap_reduce and is_apart)
        try:
            return chosen.refresh(lanes, reduce_lanes)
        finally:
            del claim

    def _claim(self, tree: ModuleTree, count: int) -> tuple[ReplicaSet, list[Any]]:
        is_for_show = torch._C._get_dispatch_mode(_FAKE) is not None  # nothing is written, and what is made is fake
        with self._lock:
            for replica_set in self._sets if not is_for_show else ():
                if replica_set.tree is tree and replica_set.is_idle():
                    return replica_set, replica_set.claim(count)
            check_device(tree.tensors, self.devices[0])  # what `has_same_members` may have been blind to
            made = ReplicaSet(tree, self._policy, self._watch)
            if self._tree is tree and not is_for_show:
                most = MAX_SETS if all(node.is_plain for node in tree.nodes) else MAX_CUSTOM_SETS
                self._sets = [*self._sets[-most + 1 :], made]
            return made, made.claim(count)

    def settle(self) -> None:
        """What the base's compute stream does from now on comes after the side streams have read the weights."""
        lanes = self.streams.lanes(len(self.devices), self._policy.overlap_broadcast)
        for lane in lanes:
            wait_stream(lanes[0].compute, lane.near)

    def empty_idle(self) -> None:
        """Lets go of what the last forwards left in shells that nothing refers to."""
        with self._lock:
            for replica_set in self._sets:
                if replica_set.is_idle():
                    replica_set.empty()

    def mark_dirty(self) -> None:
        """The next forward sends everything."""
        if self._watch is not None:
            self._watch.mark_dirty()


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False, policy: Policy = DEFAULT_POLICY
) -> list[nn.Module]:
    """New replicas of `network`, one per device; the first shares its memory. `network` must be on ``devices[0]``.

    Nothing refreshes them later: they are a snapshot. With `detach` gradients do not lead back to `network`.
    """
    check_policy(policy)
    if not devices:
        return []
    resolved = [resolve_device(device) for device in devices]
    once = replace(policy, cache_replicas=False, overlap_broadcast=False, overlap_reduce=False, skip_unchanged=False)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        return ReplicaPool(resolved, once).replicas(network, len(resolved))


def _has_exact_reference_counts() -> bool:
    """Not so without the GIL (PEP 703: counts of shared objects are split and deferred); then nothing is cached."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


_COUNTS_ARE_EXACT = _has_exact_reference_counts()
