"""The autograd side of the broadcast, and its adjoint: the sum of the lanes' gradients.

    forward    base's tensors  --identity-->  lane 0's, lane 1's, ...        one node per bucket
    backward   base's gradients  <--sum--     lane 0's, lane 1's, ...

A node runs on the stream that was current in its forward, so it is made on the hub: there the engine lets it
wait for all lanes' gradients, while the base's compute goes on. It runs when it can and not last, as it would,
because its sequence number is raised: the engine takes the ready node with the highest first.
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
"""Above every sequence number a forward can reach; only the nodes that write into ``.grad`` have a higher one."""


def connect(indices: Sequence[int], tensors: Sequence[list[Tensor]], lanes: Sequence[Lane], is_early: bool) -> None:
    """Replaces, on every lane, those tensors that require grad on the first by outputs of one node from these."""
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
    """Identity from the base's tensors to every lane's copies of them; backward sums over the lanes."""

    @staticmethod
    def forward(ctx: Any, lanes: Sequence[Lane], copies: list[Tensor], *bases: Tensor) -> tuple[Tensor, ...]:
        # A gradient nobody gave stays None: a parameter that no replica used has none, as with the bare module.
        ctx.set_materialize_grads(False)
        ctx.lanes = lanes
        ctx.count = len(bases)
        # Detached, the first lane's tensors share the version counter with the base's: a write to one shows in both.
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
    """The dense ones together, all others by themselves."""
    columns = list(zip(*grads, strict=True))
    dense = [i for i, column in enumerate(columns) if _layouts(column) == _DENSE]
    sums = [None if i in dense else _sum_alone(column, lanes) for i, column in enumerate(columns)]
    if dense:
        put(_sum_together([[of_lane[i] for i in dense] for of_lane in grads], lanes), sums, dense)
    return sums


def _zeros_for_hooks(node: Any, base: Lane) -> Tensor | None:
    """Of a parameter with hooks, by the node that writes its ``.grad``: the engine would call them with None."""
    parameter = getattr(node, "variable", None)
    if parameter is None or not parameter._backward_hooks:
        return None
    zeros = torch.zeros_like(parameter)
    _keep([zeros], base)
    return zeros


def _layouts(grads: Iterable[Tensor | None]) -> set[torch.layout | None]:
    return {None if grad is None else grad.layout for grad in grads}


def _sum_together(grads: Sequence[Sequence[Any]], lanes: Sequence[Lane]) -> tuple[Tensor, ...]:
    """One message and one kernel per lane."""
    # All set out before the hub waits for the first, or each would set out after the last one's arrival.
    arriving = [_bring(of_lane, lane, lanes[0]) for of_lane, lane in zip(grads, lanes, strict=True)]
    base = lanes[0]
    total = blocks = arriving[0]  # one tensor at least in each block of memory
    for arrived, lane in zip(arriving[1:], lanes[1:], strict=True):
        wait_stream(base.near, lane.near)
        if total is not arriving[0]:
            torch._foreach_add_(total, arrived)
        elif lane.device != base.device and _may_hold(arrived, total):
            # Not as views, whose version counter would be one for all; stock's sums are not either.
            copies = tuple([copy.data for copy in arrived])
            torch._foreach_add_(copies, total)
            total, blocks = copies, copies[:1]
        else:
            total = blocks = torch._foreach_add(total, arrived)
    _keep(blocks, base)
    return total


def _may_hold(copies: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether sums may be written to the copies: no graph needs them, and they lie as the others do."""
    return not torch.is_grad_enabled() and all(
        copy.stride() == other.stride() for copy, other in zip(copies, others, strict=True)
    )


def _keep(sums: Sequence[Tensor], base: Lane) -> None:
    """For the optimizer, who reads on the compute stream what was allocated on another."""
    if base.near != base.compute:
        for total in sums:
            record_stream(total, base.compute)


def _bring(grads: Sequence[Tensor], lane: Lane, base: Lane) -> tuple[Tensor, ...]:
    """The gradients on the base's device, once the hub waits for the lane's near stream.

    They are the engine's, made on the lane's compute stream; the far stream reads them, and they are kept for it.
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
    """Of sparse gradients, or where some lanes have none; on the hub and the lanes' compute streams."""
    total: Tensor | None = None
    base = lanes[0]
    for grad, lane in zip(column, lanes, strict=True):
        if grad is None:
            continue
        with use_stream(lane.device, lane.compute), use_stream(base.device, base.near):
            arrived = copy_to(grad, base.device, lane.is_staged)
            if total is None:
                total = arrived
            elif arrived.layout is torch.strided:  # torch adds a sparse tensor to a dense one, not the other way round
                total = arrived + total
            else:
                total = total + arrived
    if total is not None:
        _keep([total], base)
    return total
