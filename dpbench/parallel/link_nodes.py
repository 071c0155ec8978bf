"""The broadcast's autograd nodes over links, and their adjoints: pack, send and sum the lanes' gradients.

    forward    base's tensors ──> SumNode ──token──> LaneNode 0 ──> lane 0's tensors       one SumNode per bucket
                                            └──────> LaneNode 1 ──> lane 1's tensors       and a LaneNode for each lane

    backward   LaneNode i    lane i's compute stream    pack the bucket's gradients into one flat ──> mailbox
               SumNode       hub                        take the flats; copy them here; add them to lane 0's flat

The engine runs a node on the stream that was current in its forward, in its device's thread. A hook on a weight of
lane i therefore runs on lane i's compute stream, before the flat is packed there. The token carries no gradient: it
makes the engine run the SumNode after the LaneNodes, without an event for each gradient.

The engine takes the ready node with the highest sequence number first. The nodes' numbers are raised, so that they
run as soon as they are ready. Otherwise they would run last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dpbench.parallel.broadcast_node import FIRST
from dpbench.parallel.buckets import put
from dpbench.parallel.flat import Shape, flat_count, shaped_views
from dpbench.parallel.gradient_sums import is_dense, sum_each, zeros_for_hooks
from dpbench.parallel.lanes import Lane, record_event, record_stream, use_stream, wait_event, wait_stream
from dpbench.parallel.transfer import copy_to


@dataclass(frozen=True, slots=True)
class Package:
    """One lane's gradients of one bucket, ready at the event `ready`.

    `flat` holds the gradients of the tensors `dense`, by their place in the bucket. `others` are sparse.
    """

    flat: Tensor | None
    dense: tuple[int, ...]
    others: dict[int, Tensor]
    ready: Any


@dataclass(frozen=True, slots=True)
class Mailbox:
    """One bucket's lanes and shapes, and the packages of each backward pass, by its graph task.

    `shapes` are those of the tensors in a flat; None if no flat can hold them.
    """

    lanes: Sequence[Lane]
    shapes: Sequence[Shape] | None
    packages: dict[int, dict[int, Package]] = field(default_factory=dict)

    def post(self, number: int, package: Package) -> None:
        self.packages.setdefault(torch._C._current_graph_task_id(), {})[number] = package

    def take(self) -> list[tuple[Lane, Package]]:
        """The packages of the present pass, in the order of the lanes; some lanes may have sent none."""
        packages = self.packages.pop(torch._C._current_graph_task_id(), {})
        return [(self.lanes[number], packages[number]) for number in sorted(packages)]


def connect_links(
    wanted: Sequence[int],
    tensors: Sequence[list[Tensor]],
    lanes: Sequence[Lane],
    shapes: Sequence[Shape] | None,
    is_early: bool,
) -> None:
    """Replace every lane's `wanted` tensors by outputs of its LaneNode.

    The SumNode's inputs are the first lane's tensors. `tensors` holds one list per lane, which is changed in place.
    With `is_early` the nodes run in backward as soon as their gradients are there.
    """
    mailbox = Mailbox(lanes, shapes)
    with use_stream(lanes[0].device, lanes[0].near):
        token = SumNode.apply(mailbox, *[tensors[0][i] for i in wanted])
    if is_early:
        token.grad_fn._set_sequence_nr(FIRST)
    for number, of_lane in enumerate(tensors):
        outputs = LaneNode.apply(token, mailbox, number, [of_lane[i] for i in wanted])
        if is_early:
            outputs[0].grad_fn._set_sequence_nr(FIRST)
        put(outputs, of_lane, wanted)


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
        flat = _pack([grads[i] for i in dense], [shapes[i] for i in dense], lane) if dense else None
        others = {i: grad for i, grad in enumerate(grads) if grad is not None and i not in dense}
        ready = record_event(lane.device, lane.compute) if _is_apart(mailbox.lanes[0]) else None
        mailbox.post(ctx.number, Package(flat, dense, others, ready))
        return None, None, None, None


def _pack(grads: list[Any], shapes: Sequence[Shape], lane: Lane) -> Tensor:
    """The gradients as one flat tensor, in the layout of the base's tensors.

    With grad mode they are contiguous one after the other, by differentiable operators.
    """
    if torch.is_grad_enabled():
        return torch.cat([grad.reshape(-1) for grad in grads])
    if lane.is_remote and len(grads) == 1 and grads[0].stride() == shapes[0][1]:  # only read, so no copy is needed
        whole: Tensor = grads[0].as_strided((grads[0].numel(),), (1,))
        return whole
    flat = grads[0].new_empty(flat_count(shapes, grads[0].dtype))
    torch._foreach_copy_(shaped_views(flat, shapes), grads)
    return flat


def _unpack(flat: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    if torch.is_grad_enabled():
        parts = flat.split([size.numel() for size, _ in shapes])
        return [part.view(size) for part, (size, _) in zip(parts, shapes, strict=True)]
    # `data`, because views would share one version counter. Stock's sums are no views either.
    return [view.data for view in shaped_views(flat, shapes)]


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
        packages = ctx.mailbox.take()
        base: Lane = lanes[0]
        columns = {package.dense for _, package in packages}
        sums: list[Tensor | None] = [None] * ctx.count
        if len(columns) == 1 and (dense := columns.pop()):
            total = _sum_flats(packages, base)
            if _is_apart(base):
                _keep_until_the_end(total)
            put(_unpack(total, [shapes[i] for i in dense]), sums, dense)
        elif columns:
            sums = _sum_columns(packages, base, shapes, ctx.count)
        for i, (node, _) in enumerate(ctx.next_functions):
            others = [_copy_other(i, package, lane, base) for lane, package in packages if i in package.others]
            if others:
                sums[i] = sum_each([sums[i], *others])
                _record_for_optimizer(sums[i], base)
            elif sums[i] is None:
                sums[i] = zeros_for_hooks(node)
                _record_for_optimizer(sums[i], base)
        return (None, *sums)


def _keep_until_the_end(total: Tensor) -> None:
    """Keep the sum's memory until the backward pass ends. Then the compute stream has waited for the hub.

    The hub may read it last: to add it to another pass's gradient, or in a hook. Which, shows too late to record it.
    """
    torch.autograd.Variable._execution_engine.queue_callback(partial(_drop, total))


def _drop(total: Tensor) -> None:
    """Do nothing: the engine forgets this call, and with it the sum, after the pass."""


def _sum_flats(packages: Sequence[tuple[Lane, Package]], base: Lane) -> Tensor:
    """Sum the flats, all of one size. They are added to the first one, unless grad mode needs them."""
    is_in_place = not torch.is_grad_enabled()
    arrivals = _arrivals(packages, base, is_first_kept=is_in_place)
    total = next(arrivals)
    for arrived in arrivals:
        total = total.add_(arrived) if is_in_place else total + arrived
    if packages[0][0].is_remote or not is_in_place:  # else it was allocated on the compute stream
        _record_for_optimizer(total, base)
    return total


def _sum_columns(
    packages: Sequence[tuple[Lane, Package]], base: Lane, shapes: Sequence[Shape], count: int
) -> list[Tensor | None]:
    """Sum the flats of lanes that have gradients of different tensors."""
    sums: list[Tensor | None] = [None] * count
    having = [(lane, package) for lane, package in packages if package.dense]
    for (_, package), arrived in zip(having, _arrivals(having, base), strict=True):
        for i, part in zip(package.dense, _unpack(arrived, [shapes[i] for i in package.dense]), strict=True):
            # A sum of one part is a copy, because the next flat of its lane is received in the part's memory.
            before = sums[i]
            sums[i] = part.clone() if before is None else before + part
    for total in sums:
        _record_for_optimizer(total, base)
    return sums


def _arrivals(packages: Sequence[tuple[Lane, Package]], base: Lane, is_first_kept: bool = False) -> Iterator[Tensor]:
    """The flats on the base's device, to be read on the hub before the next one is asked for.

    With `is_first_kept` the caller keeps the first one, as the sum.

    All copies start before the hub waits for the first. Otherwise each would start after the previous had arrived.
    """
    flats = [_receive(package, lane, base) if lane.is_remote else package.flat for lane, package in packages]
    for (lane, package), flat in zip(packages, flats, strict=True):
        assert flat is not None
        if lane.is_remote:
            wait_stream(base.near, lane.near)
        else:
            _wait_for(base.near, package, lane)
        yield flat
        if lane.is_remote:
            wait_stream(lane.near, base.near)  # the next flat may be received in the same memory
        elif _is_apart(base) and not (is_first_kept and package is packages[0][1]):
            record_stream(flat, base.near)


def _receive(package: Package, lane: Lane, base: Lane) -> Tensor:
    """Copy a flat to the base's device on the lane's side streams. The hub then waits for the near stream."""
    assert package.flat is not None
    _wait_for(lane.far, package, lane)
    if lane.far != lane.compute:
        record_stream(package.flat, lane.far)
    with use_stream(base.device, lane.near), use_stream(lane.device, lane.far):
        return copy_to(package.flat, base.device, lane.is_staged)


def _copy_other(i: int, package: Package, lane: Lane, base: Lane) -> Tensor:
    """A gradient that is in no flat, to be read on the hub. It is sent on the lane's compute stream."""
    grad = package.others[i]
    if not lane.is_remote:
        _wait_for(base.near, package, lane)
        if _is_apart(base):
            record_stream(grad, base.near)
        return grad
    with use_stream(lane.device, lane.compute), use_stream(base.device, base.near):
        return copy_to(grad, base.device, lane.is_staged)


def _wait_for(stream: Any, package: Package, lane: Lane) -> None:
    """Make the stream wait for the package, which was packed on the lane's compute stream."""
    if stream != lane.compute:
        wait_event(stream, package.ready)


def _record_for_optimizer(total: Tensor | None, base: Lane) -> None:
    """Record a sum for the compute stream, on which the optimizer reads it. It was allocated on another."""
    if total is not None and _is_apart(base):
        record_stream(total, base.compute)


def _is_apart(base: Lane) -> bool:
    """Whether the hub is a stream of its own."""
    return bool(base.near != base.compute)
