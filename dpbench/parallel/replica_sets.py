"""Sets of replicas, one for each lane, of the base's present modules: a forward takes an idle one."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dpbench.parallel.accumulate import Part
from dpbench.parallel.broadcast import Broadcaster, Delivery
from dpbench.parallel.capture import CapturePlace
from dpbench.parallel.compiled import Callback
from dpbench.parallel.graphs import GraphReport, Graphs, StepGraph, Work, address_of, capture_step, launch
from dpbench.parallel.lanes import Lane
from dpbench.parallel.module_tree import ChangeWatch, ModuleTree, are_on, check_device, check_replicatable
from dpbench.parallel.policy import Policy
from dpbench.parallel.reference_counts import COUNTS_ARE_EXACT
from dpbench.parallel.shells import Shells, states_of
from dpbench.parallel.tables import Arrival

Result = TypeVar("Result")

_FAKE = torch._C._TorchDispatchModeKey.FAKE
MAX_SETS = 8
"""So many forwards of one wrapper may wait for their backward."""
UNUSED_FORWARDS = 100
"""A set that this many forwards have not used is let go."""
MAX_CUSTOM_SETS = 2
"""`MAX_SETS` if some modules are custom: their replicas may be in cycles."""


class ReplicaSet:
    def __init__(self, tree: ModuleTree, policy: Policy) -> None:
        check_replicatable(tree)
        self.tree = tree
        self._broadcast = Broadcaster(tree, policy)
        self._shells: list[Shells] = []
        self.check_sizes = self._broadcast.check_sizes
        self.given: list[Tensor] = []
        """Lane 1's tensors, until its forward has run."""
        self.last_forward = 0
        # Here, because a graph reads the memory of this set's buckets by address.
        self._graphs: Graphs | None = None
        self._checks_graphs = policy.check_graphs
        self.is_compiled = False
        # Of the last forward, for captures, which follow eager forwards.
        self._callback: Callback = None

    def run_graphs(
        self,
        calls: Sequence[tuple[Any, Any]],
        lanes: Sequence[Lane],
        reduce_lanes: Sequence[Lane],
        part: Part,
        report: GraphReport,
    ) -> list[Any] | None:
        """None if this forward must run eagerly. The set must be idle."""
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
        delivery = Delivery(tensors, arrivals)
        states, compilations = states_of(self.tree, self._callback)
        if compilations or self.tree.has_optimized:
            delivery.await_all()
        return self._shells[number].refresh(states, delivery, compilations)

    def is_idle(self) -> bool:
        return all(shells.is_idle() for shells in self._shells)

    def claim(self, count: int) -> list[Any]:
        """The returned references to the roots keep the set from being idle."""
        while len(self._shells) < count:
            self._shells.append(Shells(self.tree))
        return [shells.root for shells in self._shells[:count]]

    def refresh(
        self,
        lanes: Sequence[Lane],
        reduce_lanes: Sequence[Lane],
        part: Part,
        watch: ChangeWatch | None,
        callback: Callback = None,
    ) -> list[nn.Module]:
        self._callback = callback
        self.empty()  # weights of the last forward would keep their memory from being used again
        deliveries = self._broadcast.broadcast(lanes, reduce_lanes, part, watch)
        self.given = deliveries[1].tensors if len(deliveries) > 1 else []
        states, compilations = states_of(self.tree, callback)
        self.is_compiled = bool(compilations) or self.tree.has_optimized
        for delivery in deliveries if self.is_compiled else ():
            delivery.await_all()  # a compiled forward takes all of its weights at its start
        return [
            shells.refresh(states, delivery, compilations)
            for shells, delivery in zip(self._shells, deliveries, strict=False)
        ]

    def empty(self) -> None:
        """The set must be idle."""
        self.given.clear()
        for shells in self._shells:
            shells.empty()


class ReplicaSets:
    def __init__(self, device: torch.device, policy: Policy) -> None:
        self._device = device
        self._policy = policy
        # Forwards in several threads of the user must not claim one set.
        self._lock = threading.Lock()
        self._tree: ModuleTree | None = None
        # The newest is last. More than one exists while a forward waits for its backward, or a replica is referred to.
        self._sets: list[ReplicaSet] = []
        # A clock for `last_forward`: sets age by forwards, since time says nothing of use.
        self._forwards = 0

    def __len__(self) -> int:
        return len(self._sets)

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
            or not are_on(self._device, tree.tensors)
        ):
            check_device(self._read(base).tensors, self._device)

    def _read(self, base: nn.Module) -> ModuleTree:
        tree = ModuleTree(base)
        if self._is_kept(tree):
            with self._lock:
                self._tree, self._sets = tree, []
        return tree

    def _is_kept(self, tree: ModuleTree) -> bool:
        """The root of a wrapper's replica, or one in `functional_call`, has new weights in every forward."""
        weights = (tree.tensors[i] for node in tree.nodes if node.is_plain for _, i in node.parameters if i is not None)
        return (
            self._policy.cache_replicas
            and COUNTS_ARE_EXACT
            and "_is_replica" not in tree.root.__dict__
            and all(isinstance(weight, nn.Parameter) for weight in weights)
        )

    def claim(self, base: nn.Module, count: int) -> tuple[ReplicaSet, list[Any]]:
        """An idle set of the base's present tree, and references that keep it from being idle."""
        tree = self.tree_of(base)
        is_fake = torch._C._get_dispatch_mode(_FAKE) is not None  # fake tensors: nothing is written, nothing is kept
        with self._lock:
            for replica_set in self._sets if not is_fake else ():
                if replica_set.tree is tree and replica_set.is_idle():
                    self._note_use(replica_set)
                    return replica_set, replica_set.claim(count)
            check_device(tree.tensors, self._device)  # `has_same_members` may have missed a tensor elsewhere
            made = ReplicaSet(tree, self._policy)
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

    def is_first(self, replica_set: ReplicaSet) -> bool:
        return replica_set in self._sets[:1]

    def lend(self, borrower: Callable[..., Result], *args: Any) -> Result:
        """The borrower makes replicas and returns none. A replica that is still referred to keeps its set until the
        next forward.
        """
        result = borrower(*args)
        self.empty_idle()
        return result

    def empty_idle(self) -> None:
        """A caller with a variable for a replica empties nothing."""
        with self._lock:
            for replica_set in self._sets:
                if replica_set.is_idle():
                    replica_set.empty()

    def drop(self) -> None:
        with self._lock:
            self._sets = []
