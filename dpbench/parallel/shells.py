"""One replica of the base: shells that are built once and refreshed every forward (CACHING.md)."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from torch import nn

from dpbench.parallel.broadcast import Delivery
from dpbench.parallel.compiled import IN_PLACE, Callback, Compiled, InReplica, compiled_for_replicas, compiled_under
from dpbench.parallel.module_tree import ModuleTree, Node, Slots
from dpbench.parallel.reference_counts import count_links, count_own_references, count_references
from dpbench.parallel.tables import AwaitedTable

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
    compiled: Compiled | None


Compilations = dict[int, Compiled]
"""By the index of a module in the tree: what its replicas call."""


def states_of(tree: ModuleTree, callback: Callback = None) -> tuple[list[State], Compilations]:
    """The base's present states, and what replicas call of modules that are compiled in place, or by `callback`."""
    # A shell needs two more keys than its module. They are here already, so that no shell's dict has to grow.
    states = [
        {**node.module.__dict__, "_is_replica": True, "_former_parameters": None}
        for node in tree.nodes
        if node.is_plain
    ]
    compilations: Compilations = {}
    for place, module in enumerate(tree.modules):
        if module.__dict__.get(IN_PLACE) is not None:
            compilations[place] = compiled_for_replicas(module)
    if callback is not None:
        compilations.setdefault(0, compiled_under(callback))
    return states, compilations


class Shells:
    """One shell per module, in the order of the tree; a placeholder for a custom module.

    New dicts in every forward would cost more garbage collection than the rest of the refresh.
    """

    def __init__(self, tree: ModuleTree) -> None:
        self._nodes = tree.nodes
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
        return _Shell(state, {}, {}, {}, children, node.parameters, node.buffers, node.compiled)

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
        """The forward may have replaced or registered shells, or put them in attributes."""
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
        """Call this only if the shells are idle or about to be refreshed."""
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
        """Return False if another object refers to a dict, or a bare table was filled."""
        if count_references(self._states) != self._state_counts or any(self._bare_tables):
            return False
        for state in self._states:
            state.clear()
        if count_references(self._tables) != self._table_counts:
            return False
        for table in self._tables:
            table.clear()
        return True

    def refresh(self, states: Sequence[State], delivery: Delivery, compilations: Compilations) -> nn.Module:
        self._is_empty = False
        tensors = delivery.tensors
        for shell, kind in self._ending:
            _assign(shell, "__class__", kind)
        for base_state, shell in zip(states, self._plain, strict=True):
            state, parameters, buffers, modules, children, parameter_slots, buffer_slots, compiled = shell
            state.update(base_state)
            state["_parameters"] = state["_former_parameters"] = parameters
            state["_buffers"] = buffers
            state["_modules"] = modules
            if children:
                modules.update(children)
                if compiled is not None:
                    state["forward"] = partial(compiled, children["_orig_mod"])
            if delivery.arrivals:
                _await(shell, delivery)
                continue
            for name, i in parameter_slots:
                parameters[name] = None if i is None else tensors[i]
            for name, i in buffer_slots:
                buffers[name] = None if i is None else tensors[i]
        replicas = self._shells if len(self._plain) == len(self._shells) else self._add_custom(delivery)
        for place, call in compilations.items():
            replicas[place].__dict__[IN_PLACE] = InReplica(call, replicas[place])
        root: nn.Module = replicas[0]
        return root

    def _add_custom(self, delivery: Delivery) -> list[nn.Module]:
        modules = [
            shell if node.is_plain else node.module._replicate_for_data_parallel()
            for node, shell in zip(self._nodes, self._shells, strict=True)
        ]
        _link(self._nodes, modules, delivery)
        self._custom = [module for node, module in zip(self._nodes, modules, strict=True) if not node.is_plain]
        self._custom_counts = [count - 1 for count in count_references(self._custom)]  # without `modules`, a local
        return modules


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
            if node.compiled is not None:
                module.__dict__["forward"] = partial(node.compiled, module._modules["_orig_mod"])
        else:
            _assign_members(module, node, modules, delivery)


def _assign_members(replica: nn.Module, node: Node, modules: list[nn.Module], delivery: Delivery) -> None:
    """RNNs need setattr for every member. A setattr may read a value at once, so first wait for all tensors."""
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
