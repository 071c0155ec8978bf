"""Sums of gradients that lanes keep on their devices from one backward to the next.

    backward 1    lane i's compute stream    pack g1 ──> kept
    backward 2                               kept += g2
    the last                                 kept += g3 ──> sent as packed gradients are (`link_nodes.py`)

Producer and consumer of a kept sum is the lane's compute stream. If the caller's current stream changes, the new one
waits for the old one.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.flat import Shape, flat_count, shaped_views
from dpbench.parallel.flat_sums import Package, sum_columns
from dpbench.parallel.lanes import Lane, current_stream, record_event, record_stream, use_stream, wait_stream

Grads = dict[int, Tensor]
"""Dense gradients of one bucket, by their place in it."""


class KeptSum:
    """One lane's sum of the gradients of one bucket, in memory of its own.

    `flat` holds the tensors `dense`, by their place in the bucket.
    """

    def __init__(self, lane: Lane, shapes: Sequence[Shape], grads: Grads) -> None:
        self._shapes = shapes
        self._allocate(lane, tuple(grads), next(iter(grads.values())))
        torch._foreach_copy_(self._views, list(grads.values()))

    def _allocate(self, lane: Lane, dense: tuple[int, ...], like: Tensor) -> None:
        shapes = [self._shapes[i] for i in dense]
        self.lane, self.dense = lane, dense
        self.flat = like.new_empty(flat_count(shapes, like.dtype))
        self._views = shaped_views(self.flat, shapes)

    def add(self, lane: Lane, grads: Grads) -> None:
        """Add the gradients on the lane's compute stream, which must be current."""
        if lane.compute != self.lane.compute:
            wait_stream(lane.compute, self.lane.compute)
            record_stream(self.flat, lane.compute)
        self.lane = lane
        if self.dense == tuple(grads):
            torch._foreach_add_(self._views, list(grads.values()))
            return
        before = dict(zip(self.dense, self._views, strict=True))
        if not before.keys() >= grads.keys():
            self._allocate(lane, tuple(sorted(before.keys() | grads.keys())), self.flat)
        for i, view in zip(self.dense, self._views, strict=True):
            parts = [part[i] for part in (before, grads) if i in part]
            if parts[0] is not view:
                view.copy_(parts[0])
            if len(parts) > 1:
                view.add_(parts[1])

    def package(self) -> Package:
        """The sum as the lane's package of a backward pass."""
        return Package(self.flat, self.dense, {}, record_event(self.lane.device, self.lane.compute))


@dataclass(slots=True)
class KeptBucket:
    """The kept sums of one bucket, by lane number and device. `base` is lane 0 as of the last backward."""

    parameters: tuple[Tensor, ...]
    shapes: Sequence[Shape]
    base: Lane
    sums: dict[tuple[int, torch.device], KeptSum] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """What two buckets must have in common so that a sum of one can be added to a sum of the other."""
        ids = tuple(map(id, self.parameters))
        return self.base.device, self.parameters[0].dtype, ids, tuple(self.shapes)

    def add(self, number: int, lane: Lane, grads: Grads) -> None:
        """Add to the sum of the lane with this number."""
        kept = self.sums.get((number, lane.device))
        if kept is None:
            self.sums[number, lane.device] = KeptSum(lane, self.shapes, grads)
        else:
            kept.add(lane, grads)

    def packages(self) -> list[tuple[int, Lane, Package]]:
        """The sums, with the lanes that have written them, in the order of the lanes' numbers."""
        ordered = sorted(self.sums.items(), key=lambda item: item[0][0])
        return [(number, kept.lane, kept.package()) for (number, _), kept in ordered]


class KeptSums:
    """All kept sums of one wrapper. Hold `lock` to use `buckets`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.buckets: dict[tuple[Any, ...], KeptBucket] = {}
        self.generation = 0
        """The number of accumulations that have failed. Forwards of an earlier one keep nothing more."""
        self.is_used = False
        """Whether a forward has been made whose backward may keep its gradients."""

    def keep(self, bucket: KeptBucket, number: int, lane: Lane, grads: Grads, generation: int) -> bool:
        """Add to the lane's sum, and return True; return False if the forward's accumulation has failed."""
        with self.lock:
            if generation != self.generation:
                return False
            kept = self.buckets.setdefault(bucket.key, bucket)
            kept.base = bucket.base
            kept.add(number, lane, grads)
            return True

    def drop(self, *, has_failed: bool = False) -> None:
        """Forget all sums."""
        with self.lock:
            self.generation += has_failed
            self.buckets = {}


def add_to_grad(buckets: Iterable[KeptBucket]) -> None:
    """Sum the buckets on the hub, and add the sums to the parameters' ``.grad``, with their hooks.

    The present current streams must have waited for all work on ``.grad``, and may use it afterwards.
    """
    parameters, totals = [], []
    for bucket in buckets:
        base = replace(bucket.base, compute=current_stream(bucket.base.device))
        packages = [(lane, package) for _, lane, package in bucket.packages()]
        with torch.no_grad(), use_stream(base.device, base.near):
            sums = sum_columns(packages, base, bucket.shapes, len(bucket.parameters))
        wait_stream(base.compute, base.near)
        for parameter, total in zip(bucket.parameters, sums, strict=True):
            if total is None:
                continue
            if parameter.requires_grad:
                parameters.append(parameter)
                totals.append(total.to(parameter))
            else:  # frozen since; autograd refuses it
                parameter.grad = total.to(parameter) if parameter.grad is None else parameter.grad + total
    if parameters:
        torch.autograd.backward(parameters, totals)
