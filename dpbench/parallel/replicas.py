"""One replica of the base per lane: shells that are built once and refreshed every forward.

A shell that another object refers to, as its reference count shows, is left alone, and another set is used
(CACHING.md).
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from dpbench.parallel.accumulate import Accumulation, Part
from dpbench.parallel.broadcast import Broadcaster, Delivery
from dpbench.parallel.capture import CapturePlace
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.graphs import GraphReport, Graphs, StepGraph, Work, address_of, capture_step, launch
from dpbench.parallel.lanes import Lane, SideStreams, wait_stream
from dpbench.parallel.links import find_links
from dpbench.parallel.module_tree import ChangeWatch, ModuleTree, Node, Slots, are_on, check_device, check_replicatable
from dpbench.parallel.policy import DEFAULT_POLICY, Dispatch, Policy, check_policy
from dpbench.parallel.reference_counts import COUNTS_ARE_EXACT, count_links, count_own_references, count_references
from dpbench.parallel.tables import Arrival, AwaitedTable, ChildTable
from dpbench.parallel.transfer import check_route

_assign = object.__setattr__
"""Sets attributes past ``nn.Module.__setattr__``, which inspects the type of every value."""
State = dict[str, Any]
_TENSOR_TABLES = ("_parameters", "_former_parameters", "_buffers")


class _Shell(NamedTuple):
    state: State
    parameters: dict[str, Any]
    buffers: dict[str, Any]
    modules: dict[str, Any]
    children: dict[str, Any]
    parameter_slots: Slots
    buffer_slots: Slots
    is_compiled: bool


def states_of(tree: ModuleTree) -> list[State]:
    # A shell needs two more keys than its module. They are here already, so that no shell's dict has to grow.
    states = [
        {**node.module.__dict__, "_is_replica": True, "_former_parameters": None}
        for node in tree.nodes
        if node.is_plain
    ]
    for state in states:
        if "_compiled_call_impl" in state:
            state["_compiled_call_impl"] = None  # it is bound to the base and would use the base's weights
    return states


class Shells:
    """One shell per module, in the order of the tree; a placeholder for a custom module.

    The dicts are made once: new ones in every forward would cost more garbage collection than the rest of the refresh.
    """

    def __init__(self, tree: ModuleTree, is_interleaved: bool = False) -> None:
        self._nodes = tree.nodes
        self._is_interleaved = is_interleaved
        self._shells: list[Any] = [
            object.__new__(type(node.module)) if node.is_plain else object() for node in tree.nodes
        ]
        self._kinds = list(map(type, self._shells))
        self._ending = [(shell, kind) for shell, kind in zip(self._shells, self._kinds, strict=True) if _ends(kind)]
        self._custom: list[nn.Module] = []
        self._custom_counts: list[int] = []
        self._make_dicts()
        self._take_endings()
        self._counts_when_empty = count_references(self._shells)
        links = count_links(tree.nodes)
        self._counts_when_full = [count + links[i] for i, count in enumerate(self._counts_when_empty)]

    def _make_dicts(self) -> None:
        self._plain = [
            self._make(node, shell) for node, shell in zip(self._nodes, self._shells, strict=True) if node.is_plain
        ]
        self._states = [shell.state for shell in self._plain]
        self._module_tables = [shell.modules for shell in self._plain if shell.children]
        self._children = [shell.children for shell in self._plain if shell.children]
        self._tables: list[dict[str, Any]] = []
        self._bare_tables: list[dict[str, Any]] = []
        for shell in self._plain:
            for table, members in (
                (shell.parameters, shell.parameter_slots),
                (shell.buffers, shell.buffer_slots),
                (shell.modules, shell.children),
            ):
                (self._tables if members else self._bare_tables).append(table)
        self._state_counts = count_references(self._states)
        self._table_counts = count_references(self._tables)
        self._is_empty = True

    def _make(self, node: Node, shell: Any) -> _Shell:
        state: State = {}
        _assign(shell, "__dict__", state)
        children = {name: None if i is None else self._shells[i] for name, i in node.children}
        modules = ChildTable(self._leaves(node)) if children and self._is_interleaved else {}
        return _Shell(state, {}, {}, modules, children, node.parameters, node.buffers, node.is_compiled)

    def _leaves(self, node: Node) -> frozenset[str]:
        """The names of the children that have no shells below them."""
        children = [(name, self._nodes[i]) for name, i in node.children if i is not None]
        return frozenset(name for name, child in children if not (child.is_plain and child.children))

    @property
    def root(self) -> Any:
        return self._shells[0]

    def is_idle(self) -> bool:
        """Whether only these shells refer to any of them (`reference_counts.py`, 3 to 7)."""
        counts = count_references(self._shells)
        if self._is_empty:
            return counts == self._counts_when_empty
        if count_references(self._custom) != self._custom_counts:
            return False
        if self._module_tables == self._children and counts == self._counts_when_full:
            return True
        # Counted twice: a thread that is running the shells may have changed counts and links in between.
        return counts == self._counts_as_linked() == count_references(self._shells)

    def _counts_as_linked(self) -> list[int]:
        """The reference counts that idle shells would have now.

        The forward may have replaced or registered shells, or put them in attributes.
        """
        links = count_own_references(chain(self._registered(), self._written()))
        return [count + links[id(shell)] for shell, count in zip(self._shells, self._counts_when_empty, strict=True)]

    # Both generators copy each dict to a list at once: another thread may be running the shell and changing the dict.

    def _registered(self) -> Iterator[Any]:
        for shell in self._plain:
            yield from list(dict.values(shell.modules))  # not its own method, which may let another lane run
        for module in self._custom:
            yield from list(module._modules.values())

    def _written(self) -> Iterator[Any]:
        """The dicts' values that neither the base nor the refresh has put there."""
        modules = [node.module for node in self._nodes if node.is_plain]
        for module, shell in zip(modules, self._plain, strict=True):
            of_base = module.__dict__
            for name, value in list(shell.state.items()):
                # Tables of tensors refer to no shell. A `_modules` that is not the shell's own comes from the forward.
                if value is not of_base.get(name) and value is not shell.modules and name not in _TENSOR_TABLES:
                    yield value

    def empty(self) -> None:
        """Drop all state; call it only if the shells are idle or about to be refreshed."""
        if self._is_empty:
            return
        self._custom, self._custom_counts = [], []
        if list(map(type, self._shells)) != self._kinds:  # a forward that registers a parametrization changes the class
            for shell, kind in zip(self._shells, self._kinds, strict=True):
                if type(shell) is not kind:
                    _assign(shell, "__class__", kind)
        if self._ending:
            self._take_endings()
        if self._clear_dicts():
            self._is_empty = True
        else:
            self._make_dicts()

    def _take_endings(self) -> None:
        """Let shells without state be without ``__del__`` too, which would miss the state."""
        for shell, _ in self._ending:
            _assign(shell, "__class__", nn.Module)

    def _clear_dicts(self) -> bool:
        """Clear all dicts; return False if another object refers to one, or a bare table was filled."""
        if count_references(self._states) != self._state_counts or any(self._bare_tables):
            return False
        for state in self._states:
            state.clear()
        if count_references(self._tables) != self._table_counts:
            return False
        for table in self._tables:
            table.clear()
        return True

    def refresh(self, states: Sequence[State], delivery: Delivery) -> nn.Module:
        self._is_empty = False
        tensors = delivery.tensors
        for shell, kind in self._ending:
            _assign(shell, "__class__", kind)
        for base_state, shell in zip(states, self._plain, strict=True):
            state, parameters, buffers, modules, children, parameter_slots, buffer_slots, is_compiled = shell
            state.update(base_state)
            state["_parameters"] = state["_former_parameters"] = parameters
            state["_buffers"] = buffers
            state["_modules"] = modules
            if children:
                modules.update(children)
                if is_compiled:
                    state["forward"] = children["_orig_mod"]
            if delivery.arrivals:
                _await(shell, delivery)
                continue
            for name, i in parameter_slots:
                parameters[name] = None if i is None else tensors[i]
            for name, i in buffer_slots:
                buffers[name] = None if i is None else tensors[i]
        return self._shells[0] if len(self._plain) == len(self._shells) else self._add_custom(delivery)

    def _add_custom(self, delivery: Delivery) -> nn.Module:
        modules = [
            shell if node.is_plain else node.module._replicate_for_data_parallel()
            for node, shell in zip(self._nodes, self._shells, strict=True)
        ]
        _link(self._nodes, modules, delivery)
        self._custom = [module for node, module in zip(self._nodes, modules, strict=True) if not node.is_plain]
        self._custom_counts = [count - 1 for count in count_references(self._custom)]  # without `modules`, a local
        return modules[0]


def _ends(kind: type) -> bool:
    """Whether the class has a ``__del__`` that its instances can be without for a while."""
    return hasattr(kind, "__del__") and kind.__basicsize__ == nn.Module.__basicsize__


def _await(shell: _Shell, delivery: Delivery) -> None:
    state = shell.state
    if shell.parameter_slots:
        state["_parameters"] = state["_former_parameters"] = _awaited_table(shell.parameter_slots, delivery)
    if shell.buffer_slots:
        state["_buffers"] = _awaited_table(shell.buffer_slots, delivery)


def _awaited_table(slots: Slots, delivery: Delivery) -> AwaitedTable:
    values = {name: None if i is None else delivery.tensors[i] for name, i in slots}
    return AwaitedTable(values, {name: delivery.arrivals[i] for name, i in slots if i in delivery.arrivals})


def _link(nodes: Sequence[Node], modules: list[nn.Module], delivery: Delivery) -> None:
    for node, module in zip(nodes, modules, strict=True):
        if node.is_plain:
            module._modules.update((name, None if i is None else modules[i]) for name, i in node.children)
        else:
            _assign_members(module, node, modules, delivery)


def _assign_members(replica: nn.Module, node: Node, modules: list[nn.Module], delivery: Delivery) -> None:
    """Set every member by setattr, as RNNs need it; it may read a value at once, so first wait for all tensors."""
    tensors = delivery.tensors
    for _, i in (*node.parameters, *node.buffers):
        if i in delivery.arrivals:
            delivery.arrivals[i].wait()
    for table, slots, values in (
        ("_modules", node.children, modules),
        ("_parameters", node.parameters, tensors),
        ("_buffers", node.buffers, tensors),
    ):
        for name, i in slots:
            if i is None:
                getattr(replica, table)[name] = None
            else:
                setattr(replica, name, values[i])
    former = {name: tensors[i] for name, i in node.parameters if i is not None}
    replica.__dict__["_former_parameters"] = former
    own_table = replica.__dict__.get("_parameters")
    if isinstance(own_table, dict):
        own_table.update(former)
        for name, tensor in former.items():
            # As in the base, in the table alone: an entry in `__dict__` would hide what a forward puts in the table.
            if replica.__dict__.get(name) is tensor:
                del replica.__dict__[name]


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
        found = graphs.kind_of(calls)
        if found is None:
            return None
        kind, inputs = found
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
