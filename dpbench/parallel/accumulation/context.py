"""Gradient accumulation: lanes keep their gradients until the last backward, which reduces them once.

    with model.accumulate():    step 1    weights ──> lanes    lane i: kept = g1        nothing is sent back
    with model.accumulate():    step 2                         lane i: kept += g2
    outside                     step 3                         lane i: kept + g3 ──> along the route ──> .grad

Where the forward ran decides, not where its backward runs. These gradients are reduced at once, inside too:

1. those of `torch.autograd.grad`, of ``backward(inputs=...)`` and of ``create_graph=True``,
2. sparse ones and others that are in no flat,
3. those of a bucket in which a parameter has a hook of either kind: torch runs it in each step, so it must find the
   step's gradient,
4. those of bases that are no leaves, such as a wrapper inside another one's replica.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.accumulation.kept_sums import Grads, KeptBucket, KeptSum, KeptSums, add_to_grad
from dpbench.parallel.flat import Shape
from dpbench.parallel.flat_sums import Package
from dpbench.parallel.lanes import Lane
from dpbench.parallel.unchanged import ChangeWatch


class Part:
    """One forward's part in an accumulation.

    Without a `generation` the forward ran outside: its backward reduces the kept sums. With `watch`, weights that it
    has seen and that have not changed are not sent again.

    All forwards before the wrapper's first accumulation share one part.
    """

    def __init__(self, sums: KeptSums, generation: int | None = None, watch: ChangeWatch | None = None) -> None:
        self.sums = sums
        self._generation = generation
        self.watch = watch
        # The sums that this forward's backward reduces. If it fails they are gone with its graph.
        self._claimed: dict[tuple[Any, ...], KeptBucket] = {}

    def keep(self, sum_node: Any, lanes: Sequence[Lane], shapes: Sequence[Shape], number: int, grads: Grads) -> bool:
        """Keep a lane's gradients, on its compute stream; return False if they are to be reduced at once."""
        parameters = None if torch.is_grad_enabled() else accumulating(sum_node)
        if self._generation is None or parameters is None or not grads or any(map(has_hooks, parameters)):
            return False
        bucket = KeptBucket(parameters, shapes, lanes[0])
        return self.sums.keep(bucket, number, lanes[number], grads, self._generation)

    def merge(
        self, sum_node: Any, lanes: Sequence[Lane], shapes: Sequence[Shape], number: int, grads: Grads
    ) -> KeptSum | None:
        """Add a lane's gradients to its kept sum, on its compute stream, and return the sum; None if there is none."""
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
        """The kept sums of lanes that have no gradients in this pass. What else is kept is reduced at its end."""
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
        """The kept sums of this bucket, if this pass is to reduce them."""
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
        """Add to ``.grad`` what the pass has not reduced. The engine calls this after the pass."""
        with self.sums.lock:
            buckets = [*self._claimed.values(), *self.sums.buckets.values()]
            self._claimed, self.sums.buckets = {}, {}
        add_to_grad(buckets)


def has_hooks(parameter: Tensor) -> bool:
    """Whether the parameter has hooks that run when its gradient is computed, or has been added to ``.grad``."""
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
    """The kept sums of one wrapper, and the state of its `accumulate` contexts, which all threads share.

    Weights are sent once in an accumulation: from the first forward inside to the first forward outside.
    """

    def __init__(self) -> None:
        self.sums = KeptSums()
        self.is_new = True
        """Whether no context has been entered. Then all forwards take the part `outside`."""
        self.outside = Part(self.sums)
        self._depth = 0
        self._is_open = False
        self._watch: ChangeWatch | None = None
        self._lock = threading.Lock()

    @contextmanager
    def context(self) -> Iterator[None]:
        """Have the backwards of forwards inside keep their gradients. An exception drops all that is kept."""
        self._enter(1)
        try:
            yield
        except BaseException:
            self.sums.drop(has_failed=True)
            with self._lock:
                self._is_open = False
            raise
        finally:
            self._enter(-1)

    def _enter(self, levels: int) -> None:
        with self._lock:
            self.is_new = False
            self._depth += levels

    def begin_forward(self, has_links: bool) -> Part:
        """The part of a forward that begins now. Without links its backward keeps nothing: nothing would be sent."""
        with self._lock:
            is_inside, has_grad = self._depth > 0, torch.is_grad_enabled()
            is_last = self._is_open and not is_inside and has_grad
            if is_inside and not self._is_open:
                self._watch = self._watch or ChangeWatch()
                self._watch.mark_dirty()
            self._is_open = is_inside or (self._is_open and not has_grad)
            self.sums.is_used |= is_inside and has_links
            generation = self.sums.generation if is_inside and has_links else None
            return Part(self.sums, generation, self._watch if is_inside or is_last else None)

    def mark_dirty(self) -> None:
        """Make the next forward send all tensors."""
        with self._lock:
            if self._watch is not None:
                self._watch.mark_dirty()
