"""The outputs of a bucket's autograd node, kept to be handed out again by the next forward.

To make them is the dearest part of a refresh. Nothing that a forward did to them may reach the next one, so they
serve again only while they cannot be told from new ones::

    who still reads them           references from Python, from graphs (use counts); the storage's in `flat.py`
    who would find them again      weak references, as caches have; references to the node
    values written in place        the version, of the copies; in grad mode the node
    other memory, another graph    address, layout and node, as after ``.data =``, ``t_()`` or ``detach_()``
    what a tensor can carry        attributes, hooks, ``retain_grad()``, another class
    what a node can carry          attributes, hooks, metadata
    a base elsewhere               its address; the tensor in whose ``.grad`` the node's gradients end

The node can serve several graphs, since it saves no tensor: one after the other, each when a backward has let go of
the last. A hook, or whoever asks for a weight's gradient, would else get another graph's too.
"""

import sys
from collections.abc import Sequence
from operator import attrgetter, countOf, is_
from weakref import getweakrefcount

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from dpbench.parallel.lanes import Lane

_NODE, _VERSION, _IS_LEAF = attrgetter("grad_fn"), attrgetter("_version"), attrgetter("is_leaf")
_use_count = Tensor._use_count  # type: ignore[attr-defined]
_HOOKS, _RETAINS_GRAD = attrgetter("_backward_hooks"), attrgetter("retains_grad")
_LAYOUT, _STRIDES, _OWNER = attrgetter("shape", "dtype"), Tensor.stride, attrgetter("variable")


class HandedOut:
    """`outputs` of one node: those of the first lane, which share the bases' memory, then the copies of the others."""

    def __init__(self, outputs: Sequence[Tensor], lanes: Sequence[Lane], reduce_lanes: Sequence[Lane]) -> None:
        self._outputs = list(outputs)  # the only reference to each
        self._for = lanes, reduce_lanes
        self._node = _NODE(outputs[0])
        self._node.is_hooked, self._node.is_done = False, False
        self._of_node = {**vars(self._node), "is_done": True}
        self._metadata = list(self._node.metadata)
        self._node_count = sys.getrefcount(self._node)
        self._ends = [end for end, _ in self._node.next_functions]
        self._kinds = list(map(type, outputs))
        self._layouts, self._strides = list(map(_LAYOUT, outputs)), list(map(_STRIDES, outputs))
        self.count = len(outputs) // len(lanes)
        self._address = type(outputs[0]).data_ptr
        self._addresses = list(map(self._address, outputs[self.count :]))

    def of_lane(self, number: int) -> list[Tensor]:
        return self._outputs[number * self.count : (number + 1) * self.count]

    def are_as_new(self, bases: Sequence[Tensor], lanes: Sequence[Lane], reduce_lanes: Sequence[Lane]) -> bool:
        """Whether they may stand for new outputs over `bases`, once the copies' memory is free and has new values."""
        return (
            self._for == (lanes, reduce_lanes)
            and _may_serve(bases)
            and self._are_unshared()
            and self._are_where_they_were(bases)
            and self._carry_nothing()
        )

    def renew(self) -> None:
        """Makes new of what is as new."""
        self._node.is_done = False
        # Only a forward that assigns them leaves any, and to ask whether there are is to be warned.
        for output in self._outputs:
            output.grad = None

    def _are_unshared(self) -> bool:
        outputs = self._outputs
        # Not every torch counts what a graph has saved among Python's references.
        counts, uses = map(sys.getrefcount, outputs), map(_use_count, outputs)
        return (
            countOf(counts, _UNSHARED) == countOf(uses, 1) == len(outputs)
            and not any(map(getweakrefcount, outputs))
            and sys.getrefcount(self._node) == self._node_count
        )

    def _are_where_they_were(self, bases: Sequence[Tensor]) -> bool:
        """In the graph and in memory."""
        firsts, copies = self._outputs[: self.count], self._outputs[self.count :]
        return (
            countOf(map(_NODE, self._outputs), self._node) == len(self._outputs)
            and not any(map(_VERSION, copies))
            and list(map(self._address, copies)) == self._addresses
            and list(map(self._address, firsts)) == list(map(self._address, bases))
            and list(map(_LAYOUT, self._outputs)) == self._layouts
            and list(map(_STRIDES, self._outputs)) == self._strides
            and all(map(is_, map(_OWNER, self._ends), bases))
        )

    def _carry_nothing(self) -> bool:
        outputs = self._outputs
        return (
            list(map(type, outputs)) == self._kinds
            and not any(map(vars, outputs))
            and not any(map(_RETAINS_GRAD, outputs))
            and countOf(map(_HOOKS, outputs), None) == len(outputs)
            and vars(self._node) == self._of_node
            and list(self._node.metadata) == self._metadata
        )


def keep(
    outputs: Sequence[Tensor], bases: Sequence[Tensor], lanes: Sequence[Lane], reduce_lanes: Sequence[Lane]
) -> HandedOut | None:
    """None if these are not what later forwards are to get, but what a mode or a graph made of it."""
    is_ordinary = {*map(type, outputs)} <= {Tensor, *map(type, bases)}
    is_conjugable = bases[0].is_complex()  # which neither address nor layout tells
    return HandedOut(outputs, lanes, reduce_lanes) if is_ordinary and not is_conjugable and _may_serve(bases) else None


def _may_serve(bases: Sequence[Tensor]) -> bool:
    return (
        torch.is_grad_enabled()
        and all(map(_IS_LEAF, bases))
        and not torch._C._are_functorch_transforms_active()
        and not torch.is_anomaly_enabled()  # a node tells then in which forward it was made
        # Swapping a parameter makes whatever leads to its gradient raise an error.
        and not torch.__future__.get_swap_module_params_on_conversion()
        # Others are asked how outputs are made.
        and all(type(mode) is DeviceContext for mode in _get_current_function_mode_stack())
    )


_UNSHARED = next(map(sys.getrefcount, [object()]))
"""The reference count of what one list refers to, while `map` looks at it."""
