"""The base's modules and tensors, read once.

A version counter alone does not prove that a tensor is unchanged, since fused optimizers do not raise it. Under
`Policy.skip_unchanged` a tensor counts as unchanged if:

1. its memory and its version are the same,
2. no optimizer has stepped on it since,
3. the user has not called `mark_dirty` since.
"""

import gc
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, countOf, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx import GraphModule
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dpbench.parallel.compiled import Compiled, compiled_for_replicas, is_optimized
from dpbench.parallel.devices import CPU

_LAYOUT = attrgetter("shape", "dtype", "device", "requires_grad", "layout")
_TABLES = tuple(map(attrgetter, ("_modules", "_parameters", "_buffers")))
Slots = tuple[tuple[str, int | None], ...]
"""Names with indices into the tree's modules or tensors; None for a member that is None."""


@dataclass(frozen=True, slots=True)
class Node:
    """`is_plain`: a copy of its ``__dict__`` replicates the module; others are custom. `compiled` is set if
    ``torch.compile(module)`` made it; writes to it go through to the module that it wraps.
    """

    module: nn.Module
    children: Slots
    parameters: Slots
    buffers: Slots
    is_plain: bool
    compiled: Compiled | None


_NORM_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""All other buffers are resizable: a forward may give them more items in place, as torch's observers do."""
_PLAIN_WAYS = (nn.Module._replicate_for_data_parallel, GraphModule._replicate_for_data_parallel)
"""Replications that a shell replaces. A graph module's would compile its graph again and leave cycles."""


class ModuleTree:
    def __init__(self, root: nn.Module) -> None:
        self.root = root
        modules = list(root.modules())
        module_index = {id(module): i for i, module in enumerate(modules)}
        tensor_index: dict[int, int] = {}
        self.tensors: list[Tensor] = []

        def tensor_slots(table: Mapping[str, Tensor | None]) -> Slots:
            for tensor in table.values():
                if tensor is not None and id(tensor) not in tensor_index:
                    tensor_index[id(tensor)] = len(self.tensors)
                    self.tensors.append(tensor)
            return tuple((name, None if t is None else tensor_index[id(t)]) for name, t in table.items())

        self.nodes = [
            Node(
                module,
                tuple((name, None if c is None else module_index[id(c)]) for name, c in module._modules.items()),
                tensor_slots(module._parameters),
                tensor_slots(module._buffers),
                _is_plain(type(module)) or is_optimized(module),
                compiled_for_replicas(module) if is_optimized(module) else None,
            )
            for module in modules
        ]
        self.modules = modules
        self.buffer_indices = {i for node in self.nodes for _, i in node.buffers if i is not None}
        self.resizable_indices = {
            i
            for node in self.nodes
            for name, i in node.buffers
            if i is not None and not (isinstance(node.module, _NormBase) and name in _NORM_BUFFERS)
        }
        self.has_optimized = any(node.compiled is not None for node in self.nodes)
        self.is_lazy = any(is_lazy(tensor) for tensor in self.tensors)
        self.counts = [] if self.is_lazy else list(map(Tensor.numel, self.tensors))
        self._kinds = list(map(type, modules))
        # What follows is compared in every forward. Lists of all modules are compared in C, without a Python loop.
        self._tables = _tables(modules)
        self._plain_tables = [table for table in self._tables if isinstance(table, dict)]
        # No dicts: the garbage collector shows none of their values.
        self._script_tables = [table for table in self._tables if not isinstance(table, dict)]
        self._counts = list(map(len, self._tables))
        self._names = self._names_now()
        self._members = self._members_now()
        self._layouts = [] if self.is_lazy else list(map(_LAYOUT, self.tensors))
        # Others, such as sparse ones, raise at `stride`.
        self._strided = [tensor for tensor in self.tensors if tensor.layout is torch.strided]
        self._strides = [] if self.is_lazy else list(map(Tensor.stride, self._strided))

    def is_current(self) -> bool:
        """Like `is_whole`, with the tensors' layouts."""
        return (
            self.is_whole()
            and list(map(_LAYOUT, self.tensors)) == self._layouts
            and list(map(Tensor.stride, self._strided)) == self._strides
        )

    def is_whole(self) -> bool:
        """Whether the base still has the same module and tensor objects, of the same types, under the same names."""
        return (
            self.has_same_members()
            and list(map(type, self.modules)) == self._kinds
            and _are_same(_tables(self.modules), self._tables)
            and list(map(len, self._tables)) == self._counts
            and self._names_now() == self._names
        )

    def has_same_members(self) -> bool:
        """Like `is_whole` in a fraction of the time, but blind to new names and tables."""
        # Never for lazy modules: their uninitialized parameters change their class in place, which is not seen here.
        return not self.is_lazy and _are_same(self._members_now(), self._members)

    def _members_now(self) -> list[Any]:
        # A dict whose keys are strings reports only its values to the garbage collector: the fastest way to all values.
        members = gc.get_referents(*self._plain_tables)
        members += chain.from_iterable([table.values() for table in self._script_tables])
        return members

    def _names_now(self) -> list[str]:
        return [*chain.from_iterable(self._plain_tables)]  # the names in a ScriptModule cannot change


def _tables(modules: Sequence[nn.Module]) -> list[Any]:
    return [*chain.from_iterable([map(kind, modules) for kind in _TABLES])]


def _are_same(things: Sequence[Any], old_things: Sequence[Any]) -> bool:
    """The old ones are alive, so no new one has their id."""
    return len(things) == len(old_things) and all(map(is_, things, old_things))


def _is_plain(kind: type[nn.Module]) -> bool:
    return (
        kind.__setattr__ is nn.Module.__setattr__
        and kind._replicate_for_data_parallel in _PLAIN_WAYS
        # A larger size means state beside ``__dict__``: slots, or a dict's items.
        and kind.__basicsize__ == nn.Module.__basicsize__
    )


_DEVICE = attrgetter("device")
_IS_CPU = attrgetter("is_cpu")


def are_on(device: torch.device, tensors: Sequence[Tensor]) -> bool:
    if device == CPU:
        return all(map(_IS_CPU, tensors))  # makes no device objects, which halves the time
    return countOf(map(_DEVICE, tensors), device) == len(tensors)


def check_device(tensors: Sequence[Tensor], device: torch.device) -> None:
    """Raise RuntimeError, with the stock text, unless all tensors are on `device`."""
    if not are_on(device, tensors):
        stray = next(tensor.device for tensor in tensors if tensor.device != device)
        raise RuntimeError(
            "module must have its parameters and buffers "
            f"on device {device} (device_ids[0]) but found one of "
            f"them on device: {stray}"
        )


def check_replicatable(tree: ModuleTree) -> None:
    """Raise RuntimeError for lazy modules and for Python modules under a ScriptModule."""
    if tree.is_lazy:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. "
            "Run a dummy forward pass to correctly initialize the modules"
        )
    for module in tree.modules:
        if isinstance(module, torch.jit.ScriptModule) and not all(
            isinstance(child, torch.jit.ScriptModule) for child in module.modules()
        ):
            raise RuntimeError("Cannot replicate network where python modules are children of ScriptModule")


def check_not_transformed(tensors: Sequence[Tensor]) -> None:
    """Raise NotImplementedError for tensors with tangents or under ``torch.func``.

    Only plain values are sent, so derivatives would silently lack the other lanes' share.
    """
    has_transforms = torch._C._are_functorch_transforms_active()
    if not has_transforms and forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if (
            torch._C._functorch.is_functorch_wrapped_tensor(tensor)
            or forward_ad.unpack_dual(tensor).tangent is not None
        ):
            raise NotImplementedError(
                "the parameters and buffers of `DataParallel` cannot be differentiated or mapped over by torch.func, "
                "nor have tangents; its inputs can. Use the bare module, or take gradients by autograd"
            )


Signature = tuple[Any, ...]


class ChangeWatch:
    """A step counts at its start and at its end.

    One that fails may have written, and one with a closure writes after the closure's forward.
    """

    def __init__(self) -> None:
        # By id. A step of a fused optimizer writes without raising the version of a tensor.
        self._steps: Counter[int] = Counter()
        # Compared by identity: a new mark makes all earlier signatures unequal.
        self._mark = object()
        watch = weakref.ref(self)

        def note_step(optimizer: Optimizer, *_: Any) -> None:
            if (alive := watch()) is not None:
                alive._note_step(optimizer)

        for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
            weakref.finalize(self, register(note_step).remove)

    def _note_step(self, optimizer: Optimizer) -> None:
        # `requires_grad` too, because a step may have set the gradients that it used to None.
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._steps.update(id(p) for p in parameters if p.requires_grad or p.grad is not None)

    def mark_dirty(self) -> None:
        self._mark = object()

    def signature(self, tensors: Sequence[Tensor]) -> Signature:
        """A signature equals an earlier one only if the tensors provably have not changed.

        The caller must keep the tensors and their memory alive in between.
        """
        return (self._mark, *[(t.data_ptr(), _version(t), self._steps[id(t)]) for t in tensors])


def _version(tensor: Tensor) -> Any:
    # An inference tensor does not count writes. A new object never equals another, so the tensor is always sent.
    return object() if tensor.is_inference() else tensor._version
