"""One replica of the base per lane: shells that are built once and refreshed every forward.

No state of a shell lives from one forward to the next. Before a forward each shell's ``__dict__`` is filled anew from
its module in the base, so hooks, flags and attributes are the present ones. After the forward the shells are emptied,
and what the forward wrote is gone. A shell that another object refers to, such as a hook or a checkpoint that waits
in a graph, is neither refreshed nor emptied. The reference counts show it, and another set of shells is used.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from dpbench.parallel.accumulation.context import Accumulation, Part
from dpbench.parallel.broadcast import Broadcaster
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.lanes import Lane, SideStreams, wait_stream
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.policy import DEFAULT_POLICY, Dispatch, Policy, check_policy
from dpbench.parallel.reference_counts import COUNTS_ARE_EXACT
from dpbench.parallel.replicatable import are_on, check_device, check_replicatable
from dpbench.parallel.routes.nccl import check_route
from dpbench.parallel.routes.probe import find_links
from dpbench.parallel.shells import Shells, states_of
from dpbench.parallel.unchanged import ChangeWatch

Result = TypeVar("Result")

_FAKE = torch._C._TorchDispatchModeKey.FAKE
MAX_SETS = 8
"""Sets that one wrapper keeps, so that as many forwards may wait for their backward."""
UNUSED_FORWARDS = 100
"""A set that this many forwards have not used is let go, with its copies of the weights."""
MAX_CUSTOM_SETS = 2
"""The same if some modules are custom.

Their replicas may be in cycles, in use until the next garbage collection.
"""


class ReplicaSet:
    """Shells and received tensors of all lanes. A lane is added when a forward first needs it."""

    def __init__(self, tree: ModuleTree, policy: Policy, is_interleaved: bool) -> None:
        check_replicatable(tree)
        self.tree = tree
        self._broadcast = Broadcaster(tree, policy)
        self._is_interleaved = is_interleaved
        self._shells: list[Shells] = []
        self.last_forward = 0
        """The number of the forward that used the set last."""

    def is_idle(self) -> bool:
        """Whether no other object refers to a shell of the set."""
        return all(shells.is_idle() for shells in self._shells)

    def claim(self, count: int) -> list[Any]:
        """Build missing lanes, and return references to the first `count` roots.

        They keep the set from being idle.
        """
        while len(self._shells) < count:
            self._shells.append(Shells(self.tree, self._is_interleaved))
        return [shells.root for shells in self._shells[:count]]

    def refresh(
        self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane], part: Part, watch: ChangeWatch | None
    ) -> list[nn.Module]:
        """Send the base's tensors, fill the shells, and return one replica per lane."""
        self.empty()  # weights of the last forward would keep their memory from being used again
        deliveries = self._broadcast.broadcast(lanes, reduce_lanes, part, watch)
        states = states_of(self.tree)
        return [shells.refresh(states, delivery) for shells, delivery in zip(self._shells, deliveries, strict=False)]

    def empty(self) -> None:
        """Drop the state of all shells. Call it only if the set is idle."""
        for shells in self._shells:
            shells.empty()


class ReplicaPool:
    """The sets of one wrapper.

    A forward takes an idle set. The set is idle again when nothing refers to its shells.
    """

    def __init__(self, devices: Sequence[torch.device], policy: Policy, accumulation: Accumulation) -> None:
        self.devices = list(devices)
        check_route(policy, self.devices)
        links = find_links(devices, policy.route, policy.host_staged)
        self.streams = SideStreams(devices, policy.host_staged, policy.route, links)
        self._policy = policy
        self._accumulation = accumulation
        self._is_interleaved = Dispatch.INTERLEAVED in policy.ways(self.devices)
        self._unsettled = threading.local()  # `lanes` are those that the thread's last forward sent weights to
        self._watch = ChangeWatch() if policy.skip_unchanged else None
        self._lock = threading.Lock()
        self._tree: ModuleTree | None = None
        self._sets: list[ReplicaSet] = []
        self._forwards = 0

    def tree_of(self, base: nn.Module) -> ModuleTree:
        """The present tree of `base`; the kept one if it still holds."""
        tree = self._tree
        return tree if tree is not None and tree.root is base and tree.is_current() else self._read(base)

    def check_device(self, base: nn.Module) -> None:
        """Raise RuntimeError unless all of the base is on the first device."""
        tree = self._tree
        if (
            tree is None
            or tree.root is not base
            or not tree.has_same_members()
            or not are_on(self.devices[0], tree.tensors)
        ):
            check_device(self._read(base).tensors, self.devices[0])

    def _read(self, base: nn.Module) -> ModuleTree:
        tree = ModuleTree(base)
        if self._is_kept(tree):
            with self._lock:
                self._tree, self._sets = tree, []
        return tree

    def _is_kept(self, tree: ModuleTree) -> bool:
        """Whether to keep sets for this tree; not if its root has new weights in every forward.

        Such a root is a replica of a wrapper around this one. Or its tables hold tensors that are no parameters, as
        during a ``torch.func.functional_call``.
        """
        weights = (tree.tensors[i] for node in tree.nodes if node.is_plain for _, i in node.parameters if i is not None)
        return (
            self._policy.cache_replicas
            and COUNTS_ARE_EXACT
            and "_is_replica" not in tree.root.__dict__
            and all(isinstance(weight, nn.Parameter) for weight in weights)
        )

    def replicas(self, base: nn.Module, count: int) -> list[nn.Module]:
        """Replicas of `base` on the first `count` devices, with its present values and state."""
        chosen, claim = self._claim(self.tree_of(base), count)
        # Lanes on one device run one after the other anyway, so side streams would only add events.
        has_links = self.streams.has_links
        lanes = self.streams.lanes(count, self._policy.overlap_broadcast and has_links)
        reduce_lanes = self.streams.lanes(count, self._policy.overlap_reduce and has_links)
        accumulation = self._accumulation
        part = accumulation.outside if accumulation.is_new else accumulation.begin_forward(has_links)
        self._unsettled.lanes = lanes
        try:
            return chosen.refresh(lanes, reduce_lanes, part, self._watch or part.watch)
        finally:
            del claim

    def _claim(self, tree: ModuleTree, count: int) -> tuple[ReplicaSet, list[Any]]:
        is_fake = torch._C._get_dispatch_mode(_FAKE) is not None  # fake tensors: nothing is written, nothing is kept
        with self._lock:
            for replica_set in self._sets if not is_fake else ():
                if replica_set.tree is tree and replica_set.is_idle():
                    self._note_use(replica_set)
                    return replica_set, replica_set.claim(count)
            check_device(tree.tensors, self.devices[0])  # `has_same_members` may have missed a tensor elsewhere
            made = ReplicaSet(tree, self._policy, self._is_interleaved)
            if self._tree is tree and not is_fake:
                most = MAX_SETS if all(node.is_plain for node in tree.nodes) else MAX_CUSTOM_SETS
                self._sets = [*self._sets[-most + 1 :], made]
                self._note_use(made)
            return made, made.claim(count)

    def _note_use(self, chosen: ReplicaSet) -> None:
        """Count a forward, and let go of sets that have not been used for long."""
        self._forwards += 1
        chosen.last_forward = self._forwards
        if len(self._sets) > 1:
            self._sets = [kept for kept in self._sets if self._forwards - kept.last_forward < UNUSED_FORWARDS]

    def settle(self) -> None:
        """Make the base's compute stream wait until the side streams have read the weights."""
        lanes = getattr(self._unsettled, "lanes", [])
        self._unsettled.lanes = []
        for lane in lanes:
            wait_stream(lanes[0].compute, lane.near)

    def lend(self, borrower: Callable[..., Result], *args: Any) -> Result:
        """Return ``borrower(*args)``, with the idle sets emptied after it has returned.

        The borrower makes replicas, uses them, and returns no replica. It may give them names: its variables are gone
        before the sets are emptied. A replica that is still referred to then keeps its set until the next forward.
        """
        result = borrower(*args)
        self.empty_idle()
        return result

    def empty_idle(self) -> None:
        """Drop the state that forwards have left in idle sets.

        A caller with a variable for a replica empties nothing.
        """
        with self._lock:
            for replica_set in self._sets:
                if replica_set.is_idle():
                    replica_set.empty()

    def mark_dirty(self) -> None:
        """Make the next forward send all tensors."""
        if self._watch is not None:
            self._watch.mark_dirty()
        self._accumulation.mark_dirty()


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False, policy: Policy = DEFAULT_POLICY
) -> list[nn.Module]:
    """New replicas of `network`, one per device. The first shares the memory of `network`.

    `network` must be on ``devices[0]``. The other replicas are a snapshot: later changes to `network` do not reach
    them. With `detach`, no gradients flow back to `network`.
    """
    check_policy(policy)
    if not devices:
        return []
    resolved = [resolve_device(device) for device in devices]
    once = replace(policy, cache_replicas=False, overlap_broadcast=False, overlap_reduce=False, skip_unchanged=False)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        return ReplicaPool(resolved, once, Accumulation()).replicas(network, len(resolved))
