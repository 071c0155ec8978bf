"""Gradient accumulation: lanes keep their gradients until the last backward, which reduces them once.

    with model.accumulate():    step 1    weights ──> lanes    lane i: kept = g1        nothing is sent back
    with model.accumulate():    step 2                         lane i: kept += g2
    outside                     step 3                         lane i: kept + g3 ──> along the route ──> .grad

These gradients are reduced at once, inside too:

1. those of `torch.autograd.grad`, of ``backward(inputs=...)`` and of ``create_graph=True``,
2. sparse ones and others that are in no flat,
3. those of a bucket in which a parameter has a hook of either kind: torch runs it in each step, so it must find the
   step's gradient,
4. those of bases that are no leaves, such as a wrapper inside another one's replica.
"""

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.lanes import Lane, current_stream, record_event, record_stream, use_stream, wait_stream
from dpbench.parallel.layout import Shape, flat_count, shaped_views
from dpbench.parallel.module_tree import ChangeWatch
from dpbench.parallel.reduce import Package, sum_columns

Grads = dict[int, Tensor]


class KeptSum:
    """`flat` holds the tensors `dense`, by their place in the bucket."""

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
        """The lane's compute stream must be current."""
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
        return Package(self.flat, self.dense, {}, record_event(self.lane.device, self.lane.compute))


@dataclass(slots=True)
class KeptBucket:
    """`sums` has keys of lane number and device. `base` is lane 0 as of the last backward."""

    parameters: tuple[Tensor, ...]
    shapes: Sequence[Shape]
    base: Lane
    sums: dict[tuple[int, torch.device], KeptSum] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Sums of buckets with equal keys can be added."""
        ids = tuple(map(id, self.parameters))
        return self.base.device, self.parameters[0].dtype, ids, tuple(self.shapes)

    def add(self, number: int, lane: Lane, grads: Grads) -> None:
        kept = self.sums.get((number, lane.device))
        if kept is None:
            self.sums[number, lane.device] = KeptSum(lane, self.shapes, grads)
        else:
            kept.add(lane, grads)

    def packages(self) -> list[tuple[int, Lane, Package]]:
        ordered = sorted(self.sums.items(), key=lambda item: item[0][0])
        return [(number, kept.lane, kept.package()) for (number, _), kept in ordered]


class KeptSums:
    """Hold `lock` to use `buckets`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # By parameters and shapes: after a change of the base, buckets are cut otherwise.
        self.buckets: dict[tuple[Any, ...], KeptBucket] = {}
        self.generation = 0
        """The number of failed accumulations; forwards of an earlier generation keep nothing more."""
        self.is_used = False

    def keep(self, bucket: KeptBucket, number: int, lane: Lane, grads: Grads, generation: int) -> bool:
        """Return False if the forward's accumulation has failed."""
        with self.lock:
            if generation != self.generation:
                return False
            kept = self.buckets.setdefault(bucket.key, bucket)
            kept.base = bucket.base
            kept.add(number, lane, grads)
            return True

    def drop(self, *, has_failed: bool = False) -> None:
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


class Part:
    """One forward's part in an accumulation.

    Without a `generation` the forward ran outside: its backward reduces the kept sums.
    """

    def __init__(self, sums: KeptSums, generation: int | None = None, watch: ChangeWatch | None = None) -> None:
        self.sums = sums
        self._generation = generation
        self.watch = watch
        # The sums that this forward's backward reduces. If it fails they are gone with its graph.
        self._claimed: dict[tuple[Any, ...], KeptBucket] = {}

    def keep(self, sum_node: Any, lanes: Sequence[Lane], shapes: Sequence[Shape], number: int, grads: Grads) -> bool:
        """Return False if the lane's gradients are to be reduced at once."""
        parameters = None if torch.is_grad_enabled() else accumulating(sum_node)
        if self._generation is None or parameters is None or not grads or any(map(has_hooks, parameters)):
            return False
        bucket = KeptBucket(parameters, shapes, lanes[0])
        return self.sums.keep(bucket, number, lanes[number], grads, self._generation)

    def merge(
        self, sum_node: Any, lanes: Sequence[Lane], shapes: Sequence[Shape], number: int, grads: Grads
    ) -> KeptSum | None:
        """Add a lane's gradients to its kept sum; None if there is none."""
        bucket = self._claimed_bucket(sum_node, lanes, shapes)
        if bucket is None:
            return None
        lane = lanes[number]
        with self.sums.lock:
            kept = bucket.sums.pop((number, lane.device), None)
        if kept is None:
            return None
        kept.add(lane, grads)
        return kept

    def rest(self, sum_node: Any, lanes: Sequence[Lane], shapes: Sequence[Shape]) -> list[tuple[int, Lane, Package]]:
        """The kept sums of lanes that have no gradients in this pass."""
        if self._generation is not None or accumulating(sum_node) is None:
            return []
        torch.autograd.Variable._execution_engine.queue_callback(self._reduce_all)
        bucket = self._claimed_bucket(sum_node, lanes, shapes)
        if bucket is None:
            return []
        with self.sums.lock:
            packages = bucket.packages()
            bucket.sums.clear()
        return packages

    def _claimed_bucket(self, sum_node: Any, lanes: Sequence[Lane], shapes: Sequence[Shape]) -> KeptBucket | None:
        """None if this pass is not to reduce the bucket's kept sums."""
        if self._generation is not None or torch.is_grad_enabled() or not (self._claimed or self.sums.buckets):
            return None
        parameters = accumulating(sum_node)
        if parameters is None:
            return None
        self._claim()
        return self._claimed.get(KeptBucket(parameters, shapes, lanes[0]).key)

    def _claim(self) -> None:
        with self.sums.lock:
            if not self._claimed:
                self._claimed, self.sums.buckets = self.sums.buckets, {}

    def _reduce_all(self) -> None:
        """The engine calls this after the pass, for the sums that the pass has not reduced."""
        with self.sums.lock:
            buckets = [*self._claimed.values(), *self.sums.buckets.values()]
            self._claimed, self.sums.buckets = {}, {}
        add_to_grad(buckets)


def has_hooks(parameter: Tensor) -> bool:
    """Whether the parameter has hooks of either kind: on its gradient, or on AccumulateGrad."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def accumulating(sum_node: Any) -> tuple[Tensor, ...] | None:
    """The node's parameters, if the present pass adds to the ``.grad`` of all of them; else None."""
    nodes = [node for node, _ in sum_node.next_functions]
    try:
        if all(hasattr(node, "variable") and torch._C._will_engine_execute_node(node) for node in nodes):
            return tuple([node.variable for node in nodes])
    except RuntimeError:  # `torch.autograd.grad` wants the gradient of a parameter
        pass
    return None


class Accumulation:
    def __init__(self) -> None:
        self.sums = KeptSums()
        self.is_new = True
        """Whether no context has been entered; then all forwards take the part `outside`."""
        self.outside = Part(self.sums)
        self.entered: set[Context] = set()
        # From the first forward inside a context to the first one with gradients outside, which ends the accumulation.
        self._is_open = False
        # Only weights that have changed are sent: between two steps of an optimizer none does.
        self._watch: ChangeWatch | None = None
        self._lock = threading.Lock()

    def fail(self) -> None:
        self.sums.drop(has_failed=True)
        with self._lock:
            self._is_open = False

    def begin_forward(self, has_links: bool) -> Part:
        with self._lock:
            is_inside, has_grad = bool(self.entered), torch.is_grad_enabled()
            is_last = self._is_open and not is_inside and has_grad
            if is_inside and not self._is_open:
                self._watch = self._watch or ChangeWatch()
                self._watch.mark_dirty()
            self._is_open = is_inside or (self._is_open and not has_grad)
            self.sums.is_used |= is_inside and has_links
            generation = self.sums.generation if is_inside and has_links else None
            return Part(self.sums, generation, self._watch if is_inside or is_last else None)

    def mark_dirty(self) -> None:
        with self._lock:
            if self._watch is not None:
                self._watch.mark_dirty()


class Context(AbstractContextManager[None]):
    """A generator, interrupted between its two halves, would end the block when it is collected.

    An interrupt right before `__exit__` leaves the block open: for CPython, the block has ended.
    """

    def __init__(self, accumulation: Accumulation) -> None:
        self._accumulation = accumulation

    def __enter__(self) -> None:
        try:
            self._accumulation.is_new = False
            self._accumulation.entered.add(self)
        except BaseException:  # an interrupt: the block does not begin
            self._accumulation.entered.discard(self)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._accumulation.fail()
        finally:
            self._accumulation.entered.discard(self)
