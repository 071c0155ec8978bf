"""The broadcast's autograd node on one device, and its adjoint: the sum of the lanes' gradients.

    forward    base's tensors  --identity-->  lane 0's, lane 1's, ...        one node per bucket
    backward   base's gradients  <--sum--     lane 0's, lane 1's, ...

The engine takes the ready node with the highest sequence number first. The node's number is raised, so that it runs
as soon as it is ready. Otherwise it would run last.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dpbench.parallel.buckets import put
from dpbench.parallel.gradient_sums import is_dense, sum_each, zeros_for_hooks

FIRST = 2**62
"""Above every sequence number that a forward can reach.

Only the nodes that write into ``.grad`` have a higher one.
"""


def connect(wanted: Sequence[int], tensors: Sequence[list[Tensor]], is_early: bool) -> None:
    """Replace every lane's `wanted` tensors by outputs of one autograd node.

    The node's inputs are the first lane's tensors. `tensors` holds one list per lane, which is changed in place.
    With `is_early` the node runs in backward as soon as its gradients are there.
    """
    copies = [of_lane[i] for of_lane in tensors[1:] for i in wanted]
    outputs = BroadcastNode.apply(copies, *[tensors[0][i] for i in wanted])
    if is_early:
        outputs[0].grad_fn._set_sequence_nr(FIRST)
    for number, of_lane in enumerate(tensors):
        put(outputs[number * len(wanted) : (number + 1) * len(wanted)], of_lane, wanted)


class BroadcastNode(Function):
    """From the base's tensors to all lanes' copies of them; backward sums over the lanes."""

    @staticmethod
    def forward(ctx: Any, copies: list[Tensor], *bases: Tensor) -> tuple[Tensor, ...]:
        # A missing gradient stays None: a parameter that no replica used has none, as with the bare module.
        ctx.set_materialize_grads(False)
        ctx.count = len(bases)
        # `detach` shares the version counter: a write to the first lane's tensor shows in the base's, and vice versa.
        return (*[base.detach() for base in bases], *copies)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        per_lane = [grads[start : start + ctx.count] for start in range(0, len(grads), ctx.count)]
        if all(map(is_dense, grads)):
            return (None, *_sum_together(per_lane))
        columns = list(zip(*per_lane, strict=True))
        dense = [i for i, column in enumerate(columns) if all(map(is_dense, column))]
        sums = [None if i in dense else sum_each(column) for i, column in enumerate(columns)]
        if dense:
            parts: list[list[Any]] = [[of_lane[i] for i in dense] for of_lane in per_lane]
            put(_sum_together(parts), sums, dense)
        for i, (node, _) in enumerate(ctx.next_functions):
            if sums[i] is None:
                sums[i] = zeros_for_hooks(node)
        return (None, *sums)


def _sum_together(grads: Sequence[list[Any] | tuple[Any, ...]]) -> Sequence[Tensor]:
    """Sum dense gradients over the lanes, with one kernel per lane."""
    total = grads[0]
    for number, of_lane in enumerate(grads[1:]):
        if number == 0 or torch.is_grad_enabled():
            total = torch._foreach_add(total, of_lane)
        else:
            torch._foreach_add_(total, of_lane)
    return total
