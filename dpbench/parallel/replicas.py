"""Sets of replicas, one for each lane: a forward takes a set that nothing else refers to, and the base's weights."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dpbench.parallel.accumulate import Accumulation, Part
from dpbench.parallel.broadcast import Broadcaster, Delivery
from dpbench.parallel.capture import CapturePlace
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.graphs import GraphReport, Graphs, StepGraph, Work, address_of, capture_step, launch
from dpbench.parallel.lanes import Lane, SideStreams, wait_stream
from dpbench.parallel.links import find_links
from dpbench.parallel.module_tree import ChangeWatch, ModuleTree, are_on, check_device, check_replicatable
from dpbench.parallel.policy import DEFAULT_POLICY, Dispatch, Policy, check_policy
from dpbench.parallel.reference_counts import COUNTS_ARE_EXACT
from dpbench.parallel.shells import Shells, states_of
from dpbench.parallel.tables import Arrival
from dpbench.parallel.transfer import check_route

Result = TypeVar("Result")

_FAKE = torch._C._TorchDispatchModeKey.FAKE
MAX_SETS = 8
"""The number of forwards of one wrapper that may wait for their backward."""
SMALL_BYTES = 256 * 1024
"""At 12 GB/s, PCIe 3, a copy takes 22 us; two events, two waits and two switches of streams take 20 to 60
(`parts.toml`).
"""
UNUSED_FORWARDS = 100
"""A set that this many forwards have not used is let go."""
MAX_CUSTOM_SETS = 2
"""`MAX_SETS` if some modules are custom: their replicas may be in cycles."""


class ReplicaSet:
    def __init__(self, tree: ModuleTree, policy: Policy, is_interleaved: bool) -> None:
        check_replicatable(tree)
        self.tree = tree
        self._broadcast = Broadcaster(tree, policy)
        self._is_interleaved = is_interleaved
        self._shells: list[Shells] = []
        self.last_forward = 0
        self._graphs: Graphs | None = None
        self._checks_graphs = policy.check_graphs

    def run_graphs(
        self,
        calls: Sequence[tuple[Any, Any]],
        lanes: Sequence[Lane],
        reduce_lanes: Sequence[Lane],
        part: Part,
        report: GraphReport,
    ) -> list[Any] | None:
        """The outputs of the lanes' graphs; None if this forward must run eagerly. The set must be idle."""
        self._graphs = graphs = self._graphs or Graphs(self.tree, report)
        answer = graphs.kind_of(calls)
        if answer is None:
            return None
        kind, inputs = answer
        self.empty()
        self._broadcast.send(lanes)
        sums = self._broadcast.sums(reduce_lanes, part) if torch.is_grad_enabled() else []
        addresses = [*self._broadcast.addresses(), *map(address_of, graphs.constants)]
        work = Work(reduce_lanes, inputs, sums, self._broadcast)

        def capture(places: dict[int, CapturePlace]) -> StepGraph:
            try:
                constants = [constant.detach() for constant in graphs.constants]
                return StepGraph(*capture_step(work, calls, self._replica, places), addresses, constants)
            finally:
                self.empty()

        step = graphs.step_of(kind, addresses, capture)
        if step is None:
            return None
        if self._checks_graphs:
            report.begin_check(kind, self.tree, [lane.device for lane in lanes])
        return launch(graphs, step, work)

    def _replica(self, number: int, tensors: list[Tensor], arrivals: dict[int, Arrival]) -> nn.Module:
        return self._shells[number].refresh(states_of(self.tree), Delivery(tensors, arrivals))

    def is_idle(self) -> bool:
        return all(shells.is_idle() for shells in self._shells)

    def claim(self, count: int) -> list[Any]:
        """Build missing lanes; the returned references to the roots keep the set from being idle."""
        while len(self._shells) < count:
            self._shells.append(Shells(self.tree, self._is_interleaved))
        return [shells.root for shells in self._shells[:count]]

    def refresh(
        self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane], part: Part, watch: ChangeWatch | None
    ) -> list[nn.Module]:
        self.empty()  # weights of the last forward would keep their memory from being used again
        deliveries = self._broadcast.broadcast(lanes, reduce_lanes, part, watch)
        states = states_of(self.tree)
        return [shells.refresh(states, delivery) for shells, delivery in zip(self._shells, deliveries, strict=False)]

    def empty(self) -> None:
        """Drop the state of all shells; the set must be idle."""
        for shells in self._shells:
            shells.empty()


class ReplicaPool:
    """A set is idle when nothing else refers to its shells."""

    def __init__(self, devices: Sequence[torch.device], policy: Policy, accumulation: Accumulation) -> None:
        self.devices = list(devices)
        check_route(policy, self.devices)
        links = find_links(devices, policy.route, policy.host_staged)
        small_bytes = SMALL_BYTES if policy.graphs else 0
        self.streams = SideStreams(
            devices, policy.host_staged, policy.route, links, small_bytes, has_whole_buckets=policy.whole_buckets
        )
        self._policy = policy
        self._accumulation = accumulation
        self._is_interleaved = Dispatch.INTERLEAVED in policy.ways(self.devices)
        self._unsettled = threading.local()  # `lanes` are those that the thread's last forward sent weights to
        self._watch = ChangeWatch() if policy.skip_unchanged else None
        self._lock = threading.Lock()
        self._tree: ModuleTree | None = None
        self._sets: list[ReplicaSet] = []
        self._forwards = 0
        self.graph_report = GraphReport()

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
        """Whether to keep sets for this tree; not if its root has new weights in every forward, as in a wrapper's
        replica or `functional_call`.
        """
        weights = (tree.tensors[i] for node in tree.nodes if node.is_plain for _, i in node.parameters if i is not None)
        return (
            self._policy.cache_replicas
            and COUNTS_ARE_EXACT
            and "_is_replica" not in tree.root.__dict__
            and all(isinstance(weight, nn.Parameter) for weight in weights)
        )

    def replicas(self, base: nn.Module, count: int) -> list[nn.Module]:
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

    def run_graphs(self, base: nn.Module, calls: Sequence[tuple[Any, Any]]) -> list[Any] | None:
        """The outputs of the lanes' graphs; None if this forward must run eagerly."""
        tree, report = self.tree_of(base), self.graph_report
        chosen, claim = self._claim(tree, len(calls))
        reason = None
        if not self._accumulation.is_new:
            reason = "accumulate() was used"
        elif chosen not in self._sets[:1]:
            reason = "an earlier forward is in use"
        if reason is not None:
            report.note_eager(reason)
            return None
        has_links = self.streams.has_links
        lanes = self.streams.lanes(len(calls), self._policy.overlap_broadcast and has_links)
        reduce_lanes = self.streams.lanes(len(calls), self._policy.overlap_reduce and has_links)
        self._unsettled.lanes = lanes
        try:
            outputs = chosen.run_graphs(calls, lanes, reduce_lanes, self._accumulation.outside, report)
        finally:
            del claim
        if outputs is not None:
            self._unsettled.lanes = []  # lane 0 has waited for all buckets that leave its device
        return outputs

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
        self._forwards += 1
        chosen.last_forward = self._forwards
        if len(self._sets) > 1:
            self._sets = [one for one in self._sets if self._forwards - one.last_forward < UNUSED_FORWARDS]

    def settle(self) -> None:
        """Make the base's compute stream wait until the side streams have read the weights."""
        lanes = getattr(self._unsettled, "lanes", [])
        self._unsettled.lanes = []
        for lane in lanes:
            wait_stream(lanes[0].compute, lane.near)

    def lend(self, borrower: Callable[..., Result], *args: Any) -> Result:
        """The borrower makes replicas, uses them, and returns no replica; idle sets are emptied afterwards. A replica
        that is still referred to keeps its set until the next forward.
        """
        result = borrower(*args)
        self.empty_idle()
        return result

    def empty_idle(self) -> None:
        """Empty idle sets; a caller with a variable for a replica empties nothing."""
        with self._lock:
            for replica_set in self._sets:
                if replica_set.is_idle():
                    replica_set.empty()

    def recover(self) -> None:
        """Restore this thread's streams after an interrupt in a forward, and let go of all sets.

        A set may be half filled, or its memory in use by streams that it has not noted.
        """
        self.streams.restore()
        with self._lock:
            self._sets = []

    def mark_dirty(self) -> None:
        if self._watch is not None:
            self._watch.mark_dirty()
        self._accumulation.mark_dirty()


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False, policy: Policy = DEFAULT_POLICY
) -> list[nn.Module]:
    """New replicas of `network`, one per device; the first shares its memory.

    `network` must be on ``devices[0]``. The other replicas are a snapshot: later changes to `network` do not reach
    them.
    """
    check_policy(policy)
    if not devices:
        return []
    resolved = [resolve_device(device) for device in devices]
    once = replace(policy, cache_replicas=False, overlap_broadcast=False, overlap_reduce=False, skip_unchanged=False)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        return ReplicaPool(resolved, once, Accumulation()).replicas(network, len(resolved))
