"""The broadcast's autograd node, and its adjoint: the sum of the lanes' gradients.

    forward    base's tensors  --identity-->  lane 0's, lane 1's, ...        one node per bucket
    backward   base's gradients  <--sum--     lane 0's, lane 1's, ...

The engine runs a node on the stream that was current in its forward, so the node is made on the hub. There it waits
for all lanes' gradients while the base's compute goes on. The engine takes the ready node with the highest sequence
number first. The node's number is raised, so that it runs as soon as it is ready. Otherwise it would run last.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Function

from dpbench.parallel.buckets import put
from dpbench.parallel.lanes import Lane, record_stream, use_stream, wait_stream
from dpbench.parallel.transfer import copy_to

_DENSE = {torch.strided}
FIRST = 2**62
"""Above every sequence number that a forward can reach.

Only the nodes that write into ``.grad`` have a higher one.
"""


def connect(indices: Sequence[int], tensors: Sequence[list[Tensor]], lanes: Sequence[Lane], is_early: bool) -> None:
    """Replace every lane's tensors that require grad by outputs of one autograd node.

    The node's inputs are the first lane's tensors. `tensors` holds one list per lane, which is changed in place.
    With `is_early` the node runs in backward as soon as its gradients are there.
    """
    wanted = [i for i in indices if tensors[0][i].requires_grad]
    if not wanted:
        return
    copies = [of_lane[i] for of_lane in tensors[1:] for i in wanted]
    with use_stream(lanes[0].device, lanes[0].near):
        outputs = BroadcastNode.apply(lanes, copies, *[tensors[0][i] for i in wanted])
    if is_early:
        outputs[0].grad_fn._set_sequence_nr(FIRST)
    for number, of_lane in enumerate(tensors):
        put(outputs[number * len(wanted) : (number + 1) * len(wanted)], of_lane, wanted)


class BroadcastNode(Function):
    """From the base's tensors to all lanes' copies of them; backward sums over the lanes."""

    @staticmethod
    def forward(ctx: Any, lanes: Sequence[Lane], copies: list[Tensor], *bases: Tensor) -> tuple[Tensor, ...]:
        # A missing gradient stays None: a parameter that no replica used has none, as with the bare module.
        ctx.set_materialize_grads(False)
        ctx.lanes = lanes
        ctx.count = len(bases)
        # `detach` shares the version counter: a write to the first lane's tensor shows in the base's, and vice versa.
        return (*[base.detach() for base in bases], *copies)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        per_lane = [grads[start : start + ctx.count] for start in range(0, len(grads), ctx.count)]
        layouts = _layouts(grads)
        if layouts == _DENSE:
            return (None, None, *_sum_together(per_lane, ctx.lanes))
        sums = _sum_by_column(per_lane, ctx.lanes)
        if None in layouts:
            for i, (node, _) in enumerate(ctx.next_functions):
                if sums[i] is None:
                    sums[i] = _zeros_for_hooks(node, ctx.lanes[0])
        return (None, None, *sums)


def _sum_by_column(grads: Sequence[Sequence[Tensor | None]], lanes: Sequence[Lane]) -> list[Tensor | None]:
    """Sum the dense gradients together, and each of the others alone."""
    columns = list(zip(*grads, strict=True))
    dense = [i for i, column in enumerate(columns) if _layouts(column) == _DENSE]
    sums = [None if i in dense else _sum_alone(column, lanes) for i, column in enumerate(columns)]
    if dense:
        put(_sum_together([[of_lane[i] for i in dense] for of_lane in grads], lanes), sums, dense)
    return sums


def _zeros_for_hooks(node: Any, base: Lane) -> Tensor | None:
    """Zeros if the parameter has hooks, else None.

    Without zeros the engine would call the hooks with None.

    `node` is the node that writes the parameter's ``.grad``.
    """
    parameter = getattr(node, "variable", None)
    if parameter is None or not parameter._backward_hooks:
        return None
    zeros = torch.zeros_like(parameter)
    _record_for_optimizer([zeros], base)
    return zeros


def _layouts(grads: Iterable[Tensor | None]) -> set[torch.layout | None]:
    return {None if grad is None else grad.layout for grad in grads}


def _sum_together(grads: Sequence[Sequence[Any]], lanes: Sequence[Lane]) -> tuple[Tensor, ...]:
    """Sum dense gradients over the lanes, with one message and one kernel per lane."""
    # All copies start before the hub waits for the first. Otherwise each would start after the previous had arrived.
    arriving = [_copy_to_base(of_lane, lane, lanes[0]) for of_lane, lane in zip(grads, lanes, strict=True)]
    base = lanes[0]
    total = blocks = arriving[0]  # `blocks` has at least one tensor of each block of memory that holds sums
    for arrived, lane in zip(arriving[1:], lanes[1:], strict=True):
        wait_stream(base.near, lane.near)
        if total is not arriving[0]:
            torch._foreach_add_(total, arrived)
        elif lane.device != base.device and _can_add_into(arrived, total):
            # `data`, because views would share one version counter. Stock's sums are no views either.
            copies = tuple([copy.data for copy in arrived])
            torch._foreach_add_(copies, total)
            total, blocks = copies, copies[:1]
        else:
            total = blocks = torch._foreach_add(total, arrived)
    _record_for_optimizer(blocks, base)
    return total


def _can_add_into(copies: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether sums may overwrite the copies: grad mode is off, and all strides are equal."""
    return not torch.is_grad_enabled() and all(
        copy.stride() == other.stride() for copy, other in zip(copies, others, strict=True)
    )


def _record_for_optimizer(sums: Sequence[Tensor], base: Lane) -> None:
    """Record the sums for the compute stream, on which the optimizer reads them.

    They were allocated on another.
    """
    if base.near != base.compute:
        for total in sums:
            record_stream(total, base.compute)


def _copy_to_base(grads: Sequence[Tensor], lane: Lane, base: Lane) -> tuple[Tensor, ...]:
    """Copy one lane's gradients to the base's device.

    The hub may read the copies after it has waited for the lane's near stream. The engine has allocated the gradients
    on the lane's compute stream, so they are recorded for the far stream.
    """
    if grads[0].device == base.device:
        return tuple(grads)
    for grad in grads:
        record_stream(grad, lane.far)
    wait_stream(lane.far, base.near)
    with use_stream(base.device, lane.near), use_stream(lane.device, lane.far):
        flat = copy_to(_flatten_dense_tensors(tuple(grads)), base.device, lane.is_staged)
    record_stream(flat, base.near)
    return _unflatten_dense_tensors(flat, grads)


def _sum_alone(column: Sequence[Tensor | None], lanes: Sequence[Lane]) -> Tensor | None:
    """Sum gradients that are sparse or that some lanes lack.

    This runs on the hub and the lanes' compute streams.
    """
    total: Tensor | None = None
    base = lanes[0]
    for grad, lane in zip(column, lanes, strict=True):
        if grad is None:
            continue
        with use_stream(lane.device, lane.compute), use_stream(base.device, base.near):
            arrived = copy_to(grad, base.device, lane.is_staged)
            if total is None:
                total = arrived
            elif arrived.layout is torch.strided:  # torch adds sparse to dense, not dense to sparse
                total = arrived + total
            else:
                total = total + arrived
    if total is not None:
        _record_for_optimizer([total], base)
    return total
