"""Autograd's nodes between the base's tensors and the lanes'. On one device:

    forward    base's tensors  --identity-->  lane 0's, lane 1's, ...        one node per bucket
    backward   base's gradients  <--sum--     lane 0's, lane 1's, ...

Over links the backward packs, sends and sums the lanes' gradients:

    forward    base's tensors ──> SumNode ──token──> LaneNode 0 ──> lane 0's tensors       one SumNode per bucket
                                            └──────> LaneNode 1 ──> lane 1's tensors       and a LaneNode for each lane

    backward   LaneNode i    lane i's compute stream    pack the bucket's gradients into one flat ──> mailbox
               SumNode       hub                        take the flats; copy them here; add them to lane 0's flat

The token carries no gradient: it makes the engine run the SumNode after the LaneNodes, without an event for each
gradient. The engine takes the ready node with the highest sequence number first, so the nodes' numbers are raised.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dpbench.parallel.accumulate import Grads, Part
from dpbench.parallel.lanes import Lane, record_event, use_stream
from dpbench.parallel.layout import Shape, flat_count, put, shaped_views
from dpbench.parallel.reduce import (
    Package,
    copy_other,
    is_apart,
    is_dense,
    record_for_optimizer,
    sum_along_route,
    sum_columns,
    sum_each,
    sum_with_graph,
    to_sum_in,
    unpack,
    zeros_for_hooks,
)

FIRST = 2**62


def connect(indices: Sequence[int], tensors: Sequence[list[Tensor]], is_early: bool) -> None:
    """Replace every lane's tensors at `indices` by outputs of one BroadcastNode.

    With `is_early` the node runs in backward as soon as its gradients are there.
    """
    copies = [of_lane[i] for of_lane in tensors[1:] for i in indices]
    outputs = BroadcastNode.apply(copies, *[tensors[0][i] for i in indices])
    if is_early:
        outputs[0].grad_fn._set_sequence_nr(FIRST)
    for number, of_lane in enumerate(tensors):
        put(outputs[number * len(indices) : (number + 1) * len(indices)], of_lane, indices)


class BroadcastNode(Function):
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
    total = grads[0]
    for number, of_lane in enumerate(grads[1:]):
        if number == 0 or torch.is_grad_enabled():
            total = torch._foreach_add(total, of_lane)
        else:
            torch._foreach_add_(total, of_lane)
    return total


@dataclass(frozen=True, slots=True)
class Mailbox:
    """`shapes` is None if no flat can hold the bucket. The keys of `packages` are the backward passes' graph tasks."""

    lanes: Sequence[Lane]
    shapes: Sequence[Shape] | None
    part: Part
    packages: dict[int, dict[int, Package]] = field(default_factory=dict)

    def post(self, number: int, package: Package) -> None:
        self.packages.setdefault(torch._C._current_graph_task_id(), {})[number] = package

    def take(self, sum_node: Any) -> list[tuple[Lane, Package]]:
        """The packages of the present pass, in the order of the lanes."""
        packages = self.packages.pop(torch._C._current_graph_task_id(), {})
        having = [(number, self.lanes[number], package) for number, package in packages.items()]
        if self.part.sums.is_used and self.shapes is not None:
            having += self.part.rest(sum_node, self.lanes, self.shapes)
        return [(lane, package) for _, lane, package in sorted(having, key=itemgetter(0))]


def connect_links(indices: Sequence[int], tensors: Sequence[list[Tensor]], mailbox: Mailbox, is_early: bool) -> None:
    """Like `connect`, with a SumNode and LaneNodes."""
    token = sum_token([tensors[0][i] for i in indices], mailbox, is_early)
    for number, of_lane in enumerate(tensors):
        outputs = LaneNode.apply(token, mailbox, number, [of_lane[i] for i in indices])
        if is_early:
            outputs[0].grad_fn._set_sequence_nr(FIRST)
        put(outputs, of_lane, indices)


def sum_token(bases: Sequence[Tensor], mailbox: Mailbox, is_early: bool) -> Tensor:
    """The output of a new SumNode."""
    base = mailbox.lanes[0]
    with use_stream(base.device, base.near):
        token: Any = SumNode.apply(mailbox, *bases)
    if is_early:
        token.grad_fn._set_sequence_nr(FIRST)
    result: Tensor = token
    return result


class LaneNode(Function):
    """One lane's tensors of one bucket; backward packs their gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        token: Tensor,  # noqa: ARG004 - it links this node to the SumNode
        mailbox: Mailbox,
        number: int,
        tensors: list[Tensor],
    ) -> tuple[Tensor, ...]:
        # A missing gradient stays None: a parameter that no replica used has none, as with the bare module.
        ctx.set_materialize_grads(False)
        ctx.mailbox, ctx.number = mailbox, number
        # `detach` shares the version counter: a write to the first lane's tensor shows in the base's, and vice versa.
        return tuple([tensor.detach() for tensor in tensors] if number == 0 else tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        mailbox = ctx.mailbox
        lane = mailbox.lanes[ctx.number]
        shapes = mailbox.shapes
        dense = tuple(i for i, grad in enumerate(grads) if is_dense(grad)) if shapes is not None else ()
        sparse = {i: grad for i, grad in enumerate(grads) if grad is not None and i not in dense}
        flat = None
        if mailbox.part.sums.is_used and shapes is not None:
            present = {i: grad for i in dense if (grad := grads[i]) is not None}
            dense, flat = _accumulate(mailbox, ctx.number, ctx.next_functions[0][0], present)
        if dense and flat is None:
            flat = _pack([grads[i] for i in dense], [shapes[i] for i in dense], lane)
        ready = record_event(lane.device, lane.compute) if is_apart(mailbox.lanes[0]) else None
        mailbox.post(ctx.number, Package(flat, dense, sparse, ready))
        return None, None, None, None


def _accumulate(mailbox: Mailbox, number: int, sum_node: Any, grads: Grads) -> tuple[tuple[int, ...], Tensor | None]:
    """Return what is to be reduced now, and its flat if it has one."""
    assert mailbox.shapes is not None
    merged = mailbox.part.merge(sum_node, mailbox.lanes, mailbox.shapes, number, grads)
    if merged is not None:
        return merged.dense, merged.flat
    is_kept = mailbox.part.keep(sum_node, mailbox.lanes, mailbox.shapes, number, grads)
    return () if is_kept else tuple(grads), None


def _pack(grads: list[Any], shapes: Sequence[Shape], lane: Lane) -> Tensor:
    """The gradients as one flat in the base's layout; differentiable in grad mode."""
    if torch.is_grad_enabled():
        return torch.cat([grad.reshape(-1) for grad in grads])
    is_read_only = lane.is_remote and not lane.children  # else others' gradients are added to the flat
    if is_read_only and len(grads) == 1 and grads[0].stride() == shapes[0][1]:
        whole: Tensor = grads[0].as_strided((grads[0].numel(),), (1,))
        return whole
    flat = grads[0].new_empty(flat_count(shapes, grads[0].dtype))
    torch._foreach_copy_(shaped_views(flat, shapes), grads)
    return flat


class SumNode(Function):
    """The base's tensors of one bucket; backward sums the lanes' gradients on the hub."""

    @staticmethod
    def forward(ctx: Any, mailbox: Mailbox, *bases: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.mailbox, ctx.count = mailbox, len(bases)
        return torch.empty(0, device=bases[0].device)

    @staticmethod
    def backward(ctx: Any, _: None) -> tuple[Tensor | None, ...]:
        lanes, shapes = ctx.mailbox.lanes, ctx.mailbox.shapes
        base: Lane = lanes[0]
        having = ctx.mailbox.take(ctx)
        if having and having[0][0] is base:
            having[0] = base, to_sum_in(having[0][1], base)
        columns = {package.dense for _, package in having}
        sums: list[Tensor | None] = [None] * ctx.count
        is_alike = len(columns) == 1 and [lane for lane, _ in having] == list(lanes)
        if is_alike and (dense := columns.pop()):
            total = sum_with_graph(having) if torch.is_grad_enabled() else sum_along_route(having)
            if is_apart(base):
                _keep_until_the_end(total)
            put(unpack(total, [shapes[i] for i in dense]), sums, dense)
        elif columns:
            sums = sum_columns(having, base, shapes, ctx.count)
        if having and having[0][1].without:
            for i in frozenset.intersection(*[package.without for _, package in having]):
                sums[i] = None
        for i, (node, _) in enumerate(ctx.next_functions):
            sparse = [copy_other(i, package, lane, base) for lane, package in having if i in package.others]
            if sparse:
                sums[i] = sum_each([sums[i], *sparse])
                record_for_optimizer(sums[i], base)
            elif sums[i] is None:
                sums[i] = zeros_for_hooks(node)
                record_for_optimizer(sums[i], base)
        return (None, *sums)


def _keep_until_the_end(total: Tensor) -> None:
    """At the backward pass's end the compute stream has waited for the hub.

    The hub may read the sum last: to add it to another pass's gradient, or in a hook.
    """
    torch.autograd.Variable._execution_engine.queue_callback(partial(_drop, total))


def _drop(total: Tensor) -> None:
    """Do nothing: the engine forgets this call, and the sum with it, after the pass."""
