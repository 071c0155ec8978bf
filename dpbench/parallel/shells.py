"""The shells of one lane: a module object for every module of the base, filled anew for each forward."""

import sys
from collections import Counter
from typing import Any

from torch import Tensor, nn

from dpbench.parallel.tree import Node, Tree


class Shells:
    """In the order of the tree's modules. Modules that replicate in a way of their own have a placeholder."""

    def __init__(self, tree: Tree) -> None:
        self._nodes = tree.nodes
        self._shells: list[Any] = [
            type(node.module).__new__(type(node.module)) if node.is_plain else object() for node in tree.nodes
        ]
        self._children: list[dict[str, Any]] = [
            {name: None if i is None else self._shells[i] for name, i in node.children} for node in tree.nodes
        ]
        self._plain = [
            (node, shell, children)
            for node, shell, children in zip(tree.nodes, self._shells, self._children, strict=True)
            if node.is_plain
        ]
        self._is_empty = True
        self._counts_when_empty = self._count_references()
        # Full, every parent refers to its children a second time, by its own copy of the table.
        parents = Counter(i for node in tree.nodes for _, i in node.children)
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
            assign = object.__setattr__  # nn.Module's own asks what the value is
            for _, shell, _ in self._plain:
                assign(shell, "__dict__", {})
            self._is_empty = True

    def refresh(self, tensors: list[Tensor]) -> nn.Module:
        """Fills the shells with the base's present state and `tensors`, in the tree's order; gives the root."""
        assign = object.__setattr__
        for node, shell, children in self._plain:
            state = node.module.__dict__.copy()
            weights = {name: None if i is None else tensors[i] for name, i in node.parameters}
            state.update(weights)  # found without nn.Module.__getattr__, as in stock's replicas
            state["_parameters"] = state["_former_parameters"] = weights
            state["_buffers"] = {name: None if i is None else tensors[i] for name, i in node.buffers}
            state["_modules"] = children.copy()
            state["_is_replica"] = True
            assign(shell, "__dict__", state)
        self._is_empty = False
        return self._shells[0] if len(self._plain) == len(self._shells) else self._add_custom(tensors)

    def _add_custom(self, tensors: list[Tensor]) -> nn.Module:
        """Replicates by stock's protocol the modules that have their own way, and links them in."""
        modules = [
            shell if node.is_plain else node.module._replicate_for_data_parallel()
            for node, shell in zip(self._nodes, self._shells, strict=True)
        ]
        for node, module in zip(self._nodes, modules, strict=True):
            if node.is_plain:
                module._modules.update((name, None if i is None else modules[i]) for name, i in node.children)
            else:
                _assign_members(module, node, modules, tensors)
        return modules[0]


def _assign_members(replica: nn.Module, node: Node, modules: list[nn.Module], tensors: list[Tensor]) -> None:
    """Gives every member by setattr, for which such modules have their reasons: RNNs keep a list of weights by it."""
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
