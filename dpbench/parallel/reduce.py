"""Sum the lanes' packed gradients: along the route, or straight on the hub.

Along a chain a lane sends a piece as soon as it has added it, so that several links send at the same time::

    lane 3     flat 3 ──> send                                                far 3, above 3
    lane 2     flat 2 ─────────> add ──> send                                 far 2, above 2
    lane 1     flat 1 ─────────────────────> add ──> send                     far 1, near 1
    lane 0     flat 0 ─────────────────────────────────> add ──> sums         hub

Each lane adds in the order of the lanes, so every run gives the same bits, but for NCCL.

Gradients that need a graph, that a lane lacks or that are in no flat go straight to the hub on every route.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.lanes import Lane, Stream, fork, record_event, record_stream, use_stream, wait_event, wait_stream
from dpbench.parallel.layout import Shape, cut, shaped_views
from dpbench.parallel.policy import Route
from dpbench.parallel.routes import downwards
from dpbench.parallel.transfer import copy_to, sum_by_nccl


def is_dense(grad: Tensor | None) -> bool:
    return grad is not None and grad.layout is torch.strided


def sum_each(grads: Iterable[Tensor | None]) -> Tensor | None:
    """The sum, out of place; None without a gradient."""
    total: Tensor | None = None
    for grad in grads:
        if grad is None or total is None:
            total = grad if total is None else total
        elif grad.layout is torch.strided:  # torch adds sparse to dense, not dense to sparse
            total = grad + total
        else:
            total = total + grad
    return total


def zeros_for_hooks(node: Any) -> Tensor | None:
    """Zeros if the node's parameter has hooks, which the engine would call with None; else None."""
    parameter = getattr(node, "variable", None)
    if parameter is None or not parameter._backward_hooks:
        return None
    return torch.zeros_like(parameter)


Arrived = list[tuple[Tensor, Any]]
"""The pieces of a lane's sum on its parent's device, each with the event after which it is there."""


@dataclass(frozen=True, slots=True)
class Package:
    """One lane's gradients of one bucket, ready at the event `ready`. `flat` holds the tensors `dense`, by their place
    in the bucket. `others` are sparse. The next step writes the memory of a flat that `is_static` again. `without` are
    places in `dense` that have no gradient, but zeros in the flat.
    """

    flat: Tensor | None
    dense: tuple[int, ...]
    others: dict[int, Tensor]
    ready: Any
    is_static: bool = False
    without: frozenset[int] = frozenset()


Packages = Sequence[tuple[Lane, Package]]


def to_sum_in(package: Package, base: Lane) -> Package:
    """Lane 0's package, in whose memory the sum is made. A static flat is copied, since the sum becomes ``.grad``."""
    if not package.is_static:
        return package
    assert package.flat is not None
    _wait_for(base.near, package, base)
    flat = package.flat.clone()
    record_for_optimizer(flat, base)
    return replace(package, flat=flat, ready=None, is_static=False)


def sum_along_route(packages: Packages) -> Tensor:
    """The sum of all flats, in the memory of lane 0's, to be read on the hub; lanes with children write to theirs."""
    if any(lane.route is Route.NCCL for lane, _ in packages):
        return _sum_by_nccl(packages)
    parents = tuple([lane.parent for lane, _ in packages])
    is_whole = not (any(parents) and packages[0][0].has_pieces)
    arrived: dict[int, Arrived] = {}
    for number in reversed(downwards(parents)):
        lane, package = packages[number]
        parent = packages[lane.parent][0]
        with ExitStack() as streams:
            if number != 0:
                if not lane.is_linked:
                    continue  # its parent reads the flat where it is
                _take_over(package, lane)
                streams.enter_context(use_stream(parent.device, lane.above))
                streams.enter_context(use_stream(lane.device, lane.far))
            else:
                _wait_for(lane.far, package, lane)
            arrived[number] = _add_and_send(number, packages, arrived, is_whole)
    total = packages[0][1].flat
    assert total is not None
    return total


def _sum_by_nccl(packages: Packages) -> Tensor:
    flats: list[Tensor] = []
    for lane, package in packages:
        assert package.flat is not None
        _take_over(package, lane)
        flats.append(package.flat)
    sum_by_nccl(flats, [lane.far for lane, _ in packages])
    return flats[0]


def _add_and_send(number: int, packages: Packages, arrived: dict[int, Arrived], is_whole: bool) -> Arrived:
    lane, package = packages[number]
    parent = packages[lane.parent][0]
    sent: Arrived = []
    flats = _pieces(package, is_whole)
    for index, flat in enumerate(flats):
        for child in lane.children:
            below, child_package = packages[child]
            if below.is_linked:
                part, event = arrived[child][index]
                wait_event(lane.far, event)
            else:
                part = _pieces(child_package, is_whole)[index]
                if index == 0:
                    _wait_for(lane.far, child_package, below)
            flat.add_(part)
        if flat is flats[-1]:
            _give_back([packages[child] for child in lane.children], lane)
        if number != 0:
            copied = copy_to(flat, parent.device, lane.is_staged)
            sent.append((copied, record_event(parent.device, lane.above) if lane.above != parent.far else None))
    for child in lane.children:
        arrived.pop(child, None)
    return sent


def _give_back(children: Packages, lane: Lane) -> None:
    """The children's memory may be reused after the lane has read it."""
    fork(lane.far, [child.above for child, _ in children if child.is_linked])
    for child, package in children:
        if not child.is_linked and lane.far != child.compute:
            assert package.flat is not None
            record_stream(package.flat, lane.far)


def _pieces(package: Package, is_whole: bool) -> Sequence[Tensor]:
    assert package.flat is not None
    return [package.flat] if is_whole else cut(package.flat)


def sum_with_graph(packages: Packages) -> Tensor:
    """The sum of all flats, by differentiable operators on the hub."""
    base = packages[0][0]
    arriving = arrivals(packages, base)
    total = next(arriving)
    for flat in arriving:
        total = total + flat
    record_for_optimizer(total, base)
    return total


def arrivals(packages: Packages, base: Lane) -> Iterator[Tensor]:
    """The flats on the base's device, to be read on the hub before the next one is asked for.

    All copies start before the hub waits for the first.
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
        elif is_apart(base):
            record_stream(flat, base.near)


def _receive(package: Package, lane: Lane, base: Lane) -> Tensor:
    assert package.flat is not None
    _take_over(package, lane)
    with use_stream(base.device, lane.near), use_stream(lane.device, lane.far):
        return copy_to(package.flat, base.device, lane.is_staged)


def copy_other(i: int, package: Package, lane: Lane, base: Lane) -> Tensor:
    """A gradient that is in no flat, sent on the lane's compute stream, to be read on the hub."""
    grad = package.others[i]
    if not lane.is_remote:
        _wait_for(base.near, package, lane)
        if is_apart(base):
            record_stream(grad, base.near)
        return grad
    with use_stream(lane.device, lane.compute), use_stream(base.device, base.near):
        return copy_to(grad, base.device, lane.is_staged)


def _take_over(package: Package, lane: Lane) -> None:
    assert package.flat is not None
    _wait_for(lane.far, package, lane)
    if lane.far != lane.compute:
        record_stream(package.flat, lane.far)


def _wait_for(stream: Stream, package: Package, lane: Lane) -> None:
    if stream != lane.compute:
        wait_event(stream, package.ready)


def unpack(flat: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    if torch.is_grad_enabled():
        parts = flat.split([size.numel() for size, _ in shapes])
        return [part.view(size) for part, (size, _) in zip(parts, shapes, strict=True)]
    # `data`, because views would share one version counter. Stock's sums are no views either.
    return [view.data for view in shaped_views(flat, shapes)]


def sum_columns(
    packages: Sequence[tuple[Lane, Package]], base: Lane, shapes: Sequence[Shape], count: int
) -> list[Tensor | None]:
    """Sum flats that hold different tensors."""
    sums: list[Tensor | None] = [None] * count
    having = [(lane, package) for lane, package in packages if package.dense]
    for (_, package), arrived in zip(having, arrivals(having, base), strict=True):
        for i, part in zip(package.dense, unpack(arrived, [shapes[i] for i in package.dense]), strict=True):
            # A sum of one part is a copy, because the next flat of its lane is received in the part's memory.
            before = sums[i]
            sums[i] = part.clone() if before is None else before + part
    for total in sums:
        record_for_optimizer(total, base)
    return sums


def record_for_optimizer(total: Tensor | None, base: Lane) -> None:
    """The sum was allocated on another stream than that on which the optimizer reads it."""
    if total is not None and is_apart(base):
        record_stream(total, base.compute)


def is_apart(base: Lane) -> bool:
    return bool(base.near != base.compute)
