"""The shells of one lane: a module object for every module of the base, filled anew for each forward."""

import sys
from collections import Counter
from typing import Any

from torch import Tensor, nn

from dpbench.parallel.arrival import AwaitedTable
from dpbench.parallel.broadcast import Delivery
from dpbench.parallel.tree import Node, Slots, Tree

_assign = object.__setattr__
"""Past ``nn.Module.__setattr__``, which asks of every value what it is."""


class _Shell:
    """One shell, its module in the base, and what replaces the module's tables in the shell."""

    __slots__ = ("children", "module", "node", "own", "shell")

    def __init__(self, node: Node, shell: nn.Module, children: dict[str, Any]) -> None:
        self.node = node
        self.module = node.module
        self.shell = shell
        self.children = children
        self.reset()

    def reset(self) -> None:
        # The empty tables are made once and used by every forward: four new dicts per module and lane would
        # cost more in garbage collection than all the rest of the refresh.
        self.own: dict[str, Any] = {
            "_parameters": {},
            "_former_parameters": {},
            "_buffers": {},
            "_modules": {},
            "_is_replica": True,
            "_compiled_call_impl": None,  # bound to the base: its compiled call would use the base's weights
        }
        if self.node.is_compiled:
            self.own["forward"] = self.children["_orig_mod"]

    def fill(self, delivery: Delivery) -> None:
        """Gives the shell the module's present state, with the delivered tensors for its own."""
        state = self.module.__dict__.copy()
        state.update(self.own)
        node = self.node
        if node.parameters:
            state["_parameters"] = state["_former_parameters"] = weights = _table(node.parameters, delivery)
            if type(weights) is dict:
                state.update(weights)  # found without nn.Module.__getattr__, as in stock's replicas
        if node.buffers:
            state["_buffers"] = _table(node.buffers, delivery)
        if node.children:
            state["_modules"] = self.children.copy()
        _assign(self.shell, "__dict__", state)

    def empty(self) -> None:
        own = self.own
        if own["_parameters"] or own["_former_parameters"] or own["_buffers"] or own["_modules"]:
            self.reset()  # the forward has registered something
        _assign(self.shell, "__dict__", {})


class Shells:
    """In the order of the tree's modules. Modules that replicate in a way of their own have a placeholder."""

    def __init__(self, tree: Tree) -> None:
        self._nodes = tree.nodes
        self._shells: list[Any] = [
            type(node.module).__new__(type(node.module)) if node.is_plain else object() for node in tree.nodes
        ]
        self._plain = [
            _Shell(node, shell, {name: None if i is None else self._shells[i] for name, i in node.children})
            for node, shell in zip(tree.nodes, self._shells, strict=True)
            if node.is_plain
        ]
        self._is_empty = True
        self._counts_when_empty = self._count_references()
        # Full, every parent refers to its children a second time, by its own copy of the table.
        # A compiled module also calls its child in place of its compiled forward.
        parents = Counter(i for node in tree.nodes for _, i in node.children * (1 + node.is_compiled))
        self._counts_when_full = [count + parents[i] for i, count in enumerate(self._counts_when_empty)]

    @property
    def root(self) -> Any:
        return self._shells[0]

    def _count_references(self) -> list[int]:
        return list(map(sys.getrefcount, self._shells))

    def is_idle(self) -> bool:
        """Whether nothing but these shells themselves refers to any of them."""
        return self._count_references() == (self._counts_when_empty if self._is_empty else self._counts_when_full)

    def empty(self) -> None:
        """Drops all state. To be called only when idle, or about to be refreshed."""
        if not self._is_empty:
            for shell in self._plain:
                shell.empty()
            self._is_empty = True

    def refresh(self, delivery: Delivery) -> nn.Module:
        """Fills the shells with the base's present state and the delivered tensors; gives the root."""
        self._is_empty = False
        for shell in self._plain:
            shell.fill(delivery)
        return self._shells[0] if len(self._plain) == len(self._shells) else self._add_custom(delivery)

    def _add_custom(self, delivery: Delivery) -> nn.Module:
        """Replicates by stock's protocol the modules that have their own way, and links them in."""
        modules = [
            shell if node.is_plain else node.module._replicate_for_data_parallel()
            for node, shell in zip(self._nodes, self._shells, strict=True)
        ]
        for node, module in zip(self._nodes, modules, strict=True):
            if node.is_plain:
                module._modules.update((name, None if i is None else modules[i]) for name, i in node.children)
            else:
                _assign_members(module, node, modules, delivery)
        return modules[0]


def _table(slots: Slots, delivery: Delivery) -> dict[str, Tensor | None]:
    tensors, arrivals = delivery.tensors, delivery.arrivals
    table = {name: None if i is None else tensors[i] for name, i in slots}
    if not arrivals:
        return table
    return AwaitedTable(table, {name: arrivals[i] for name, i in slots if i in arrivals})


def _assign_members(replica: nn.Module, node: Node, modules: list[nn.Module], delivery: Delivery) -> None:
    """Gives every member by setattr, for which such modules have their reasons: RNNs keep a list of weights by it.

    What they do with it is not known, so all of it is waited for first.
    """
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
