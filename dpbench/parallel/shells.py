"""The shells of one lane: a module object for every module of the base, filled anew for each forward."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from dpbench.parallel.arrival import AwaitedTable
from dpbench.parallel.broadcast import Delivery
from dpbench.parallel.tree import Node, Slots, Tree

_assign = object.__setattr__
"""Past ``nn.Module.__setattr__``, which asks of every value what it is."""
_NOTHING: dict[str, Any] = {}
"""The state of all empty shells. Nobody refers to them, so nobody writes to it."""


class _Shell(NamedTuple):
    """A shell with its module in the base, its children's shells, and its own tables.

    The tables are those of a module without members. They are made once and used by every forward: new ones would
    cost more in garbage collection than all the rest of the refresh.
    """

    shell: Any
    module: nn.Module
    node: Node
    children: dict[str, Any]
    tables: dict[str, Any]


class Shells:
    """In the order of the tree's modules. Modules that replicate in a way of their own have a placeholder."""

    def __init__(self, tree: Tree) -> None:
        self._nodes = tree.nodes
        self._shells: list[Any] = [
            type(node.module).__new__(type(node.module)) if node.is_plain else object() for node in tree.nodes
        ]
        self._plain = [
            self._make(node, shell) for node, shell in zip(tree.nodes, self._shells, strict=True) if node.is_plain
        ]
        self._is_empty = True
        self._counts_when_empty = self._count_references()
        links = _links_when_full(tree.nodes)
        self._counts_when_full = [count + links[i] for i, count in enumerate(self._counts_when_empty)]

    def _make(self, node: Node, shell: Any) -> _Shell:
        children = {name: None if i is None else self._shells[i] for name, i in node.children}
        own: dict[str, Any] = {**_empty_tables(), "_is_replica": True}
        if node.is_compiled:
            own["forward"] = children["_orig_mod"]
        return _Shell(shell, node.module, node, children, own)

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
        if self._is_empty:
            return
        for shell, _, _, _, tables in self._plain:
            _assign(shell, "__dict__", _NOTHING)
            if tables["_parameters"] or tables["_buffers"] or tables["_modules"]:  # forward has registered something
                tables.update(_empty_tables())
        self._is_empty = True

    def refresh(self, delivery: Delivery) -> nn.Module:
        """Fills the shells with the base's present state and the delivered tensors; gives the root."""
        self._is_empty = False
        for shell, module, node, children, tables in self._plain:
            state = module.__dict__.copy()
            state.update(tables)
            if node.parameters:
                state["_parameters"] = state["_former_parameters"] = weights = _table(node.parameters, delivery)
                if not delivery.arrivals:
                    state.update(weights)  # found without nn.Module.__getattr__, as in stock's replicas
            if node.buffers:
                state["_buffers"] = _table(node.buffers, delivery)
            if children:
                state["_modules"] = children.copy()
            if "_compiled_call_impl" in state:
                state["_compiled_call_impl"] = None  # bound to the base: it would use the base's weights
            _assign(shell, "__dict__", state)
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


def _links_when_full(nodes: Sequence[Node]) -> Counter[int]:
    """How often shells are referred to by the tables of their parents between a refresh and the next emptying.

    A compiled module also refers to its child in place of its compiled forward. Modules that replicate in a way of
    their own are new each time; what is under such a root only is let go with it after the forward.
    """
    kept = {i for i, node in enumerate(nodes) if node.is_plain}
    reached = kept
    while reached:
        reached = {i for j in reached for _, i in nodes[j].children if i is not None} - kept
        kept |= reached
    children = [i for j in kept for _, i in nodes[j].children * (1 + nodes[j].is_compiled) if i is not None]
    return Counter(i for i in children if nodes[i].is_plain)


def _empty_tables() -> dict[str, dict[str, Any]]:
    nothing: dict[str, Any] = {}
    return {"_parameters": nothing, "_former_parameters": nothing, "_buffers": {}, "_modules": {}}


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
