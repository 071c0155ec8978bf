"""CUDA graphs of a lane's forward and backward (GRAPHS.md).

A graph has the addresses of the weights, of its inputs and of its flats. Each launch records the graph's events (CUDA
Driver API, cuGraphAddEventRecordNode). So the hub can wait for a bucket in the middle of a backward.

Steps with the same shapes, modes and values that are no tensors are of one kind.
"""

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dpbench.parallel.broadcast import Broadcaster, Sum
from dpbench.parallel.capture import CapturePlace, RefusedError
from dpbench.parallel.gradient_nodes import FIRST, Mailbox
from dpbench.parallel.graph_check import CHECKS, Snapshot, difference
from dpbench.parallel.graph_kinds import Key, is_tensor, leaf_key, modes_of, why_never, why_not_now
from dpbench.parallel.graph_waits import waits_are_for_earlier_records
from dpbench.parallel.lanes import Lane, use_stream
from dpbench.parallel.layout import Shape, flat_count, shaped_views
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.reduce import Package, is_dense
from dpbench.parallel.tables import Arrival

WARM_UPS = 2
"""Eager steps before a capture: libraries set themselves up, and kinds that come once are not captured."""
MOST_KINDS = 8
MOST_CAPTURES = 3
"""A kind whose weights keep moving runs eagerly after so many captures."""
_VERSION = attrgetter("_version")


@dataclass(slots=True)
class GraphReport:
    forwards: Counter[str] = field(default_factory=Counter)
    trials_left: int | None = None
    """None if steps of the present kind stay eager."""
    is_warming_up: bool = False
    """Whether the present forward must run in sequence, on the thread that will capture."""
    has_warned: bool = False
    is_checking: bool = False
    _check: "Check | None" = None

    def note(self, text: str) -> None:
        """Count a forward, unless it repeats another for a comparison."""
        if not self.is_checking:
            self.forwards[text] += 1

    def note_eager(self, reason: str) -> None:
        self.trials_left = None
        self.note(f"eager: {reason}")
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(f"Policy(graphs=True): a forward ran eagerly: {reason}", stacklevel=2)

    def begin_check(self, kind: "_Kind", tree: ModuleTree, devices: Sequence[torch.device]) -> None:
        if kind.checks < CHECKS and not self.is_checking:
            self._check = Check(self, kind, Snapshot(tree, devices, kind.checks))
            kind.checks += 1

    def take_check(self) -> "Check | None":
        check, self._check = self._check, None
        return check

    def lines(self) -> list[str]:
        return [f"{count} forwards: {text}" for text, count in self.forwards.items()]


class GraphedBucket:
    """`dense` has the places in the bucket of the tensors that `flat` holds."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = shapes
        self.dense: tuple[int, ...] = ()
        self.flat: Tensor | None = None
        self.event = torch.cuda.Event(external=True)

    def pack(self, grads: Sequence[Tensor | None]) -> None:
        present = {i: grad for i, grad in enumerate(grads) if grad is not None}
        if not all(map(is_dense, present.values())):
            raise RefusedError("a gradient is sparse")
        shapes = [self.shapes[i] for i in present]
        first = next(iter(present.values()))
        self.dense = tuple(present)
        self.flat = first.new_empty(flat_count(shapes, first.dtype))
        torch._foreach_copy_(shaped_views(self.flat, shapes), list(present.values()))
        self.event.record()


class PackNode(Function):
    @staticmethod
    def forward(ctx: Any, bucket: GraphedBucket, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.bucket = bucket
        return tuple([weight.detach() for weight in weights])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        ctx.bucket.pack(grads)
        return (None, *[None for _ in grads])


Weight = tuple[int, int]
"""The number of its bucket, and its place there."""


class LaneGraph:
    def __init__(self, lane: Lane, inputs: Sequence[Tensor], place: CapturePlace) -> None:
        self._lane, self._place = lane, place
        self.inputs = [torch.empty_like(tensor) for tensor in inputs]
        self.buckets: list[GraphedBucket] = []
        self.outputs: list[Tensor] = []
        self.needs_grad: list[bool] = []
        # Static: a launch copies the gradients of the outputs here, and the captured backward reads them by address.
        self._grads: list[Tensor] = []
        # For each output the weights that its gradient reaches: others keep None in `.grad`, as in an eager step.
        self._reached: list[set[Weight]] = []
        self._forward: torch.cuda.CUDAGraph | None = None
        self._backward: torch.cuda.CUDAGraph | None = None

    def capture(self, forward: Callable[["LaneGraph"], Any]) -> TreeSpec:
        """Capture `forward`, and a backward if its outputs have a graph; return the outputs' form."""
        with self._place.capture() as self._forward:
            outputs, spec = tree_flatten(forward(self))
        if not outputs or not all(isinstance(output, Tensor) for output in outputs):
            raise RefusedError("the module returns something that is no tensor")
        if any(output.device != self._lane.device for output in outputs):
            raise RefusedError("the module returns a tensor on another device")
        self.needs_grad = [output.requires_grad for output in outputs]
        trained_outputs = [output for output in outputs if output.requires_grad]
        if trained_outputs:
            self._grads = [torch.empty_like(output) for output in trained_outputs]
            self._reached = [_reached_weights(output, self.buckets) for output in trained_outputs]
            with self._place.capture() as self._backward:
                torch.autograd.backward(trained_outputs, self._grads)
        self.outputs = [output.detach() for output in outputs]
        return spec

    def launch_forward(self, inputs: Sequence[Tensor]) -> None:
        if inputs:
            torch._foreach_copy_(self.inputs, list(inputs))
        assert self._forward is not None
        self._forward.replay()

    def launch_backward(self, grads: Sequence[Tensor | None]) -> set[Weight]:
        """Return the weights that get no gradient. An output without a gradient gets zeros (GRAPHS.md).

        The last step's sums have read the flats on the far stream, before it received this step's weights.
        """
        assert self._backward is not None
        output_grads = [grad for grad, is_wanted in zip(grads, self.needs_grad, strict=True) if is_wanted]
        present = [(static, grad) for static, grad in zip(self._grads, output_grads, strict=True) if grad is not None]
        if present:
            torch._foreach_copy_([static for static, _ in present], [grad for _, grad in present])
        if missing := [static for static, grad in zip(self._grads, output_grads, strict=True) if grad is None]:
            torch._foreach_zero_(missing)
        self._backward.replay()
        if not missing:
            return set()
        reached = [weights for weights, grad in zip(self._reached, output_grads, strict=True) if grad is not None]
        return set().union(*self._reached).difference(*reached)


@dataclass(frozen=True, slots=True)
class StepGraph:
    """If `waits`, the forwards themselves wait for the weights, where they read them."""

    lanes: Sequence[LaneGraph]
    spec: TreeSpec
    waits: bool
    addresses: Sequence[Any]
    constants: Sequence[Tensor]


def address_of(constant: Tensor) -> tuple[Any, ...]:
    """What changes if a constant is replaced or written."""
    return constant.data_ptr(), constant._version, constant.shape, constant.stride(), constant.dtype


class GraphedLane(Function):
    """The `tokens` make the engine run the SumNodes after this node's backward."""

    @staticmethod
    def forward(ctx: Any, run: "Run", number: int, inputs: Sequence[Tensor], *tokens: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.run, ctx.number, ctx.count = run, number, len(tokens)
        graph = run.step.lanes[number]
        graph.launch_forward(inputs)
        outputs = [output.detach() for output in graph.outputs]
        ctx.mark_non_differentiable(
            *[output for output, needs_grad in zip(outputs, graph.needs_grad, strict=True) if not needs_grad]
        )
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[None, ...]:
        ctx.run.backward(ctx.number, grads)
        return (None,) * (3 + ctx.count)


class Run:
    """The run keeps `weights`, which its backward reads by address."""

    def __init__(
        self, graphs: "Graphs", step: StepGraph, lanes: Sequence[Lane], mailboxes: Sequence[Mailbox], weights: object
    ) -> None:
        self.step = step
        self._graphs, self._lanes, self._mailboxes, self._weights = graphs, lanes, mailboxes, weights
        self.is_done = False
        graphs.begin(self)
        # Both are read again by the backward: a later launch has replaced the activations, a write the weights.
        self._launches = graphs.launches
        self._versions = graphs.versions() if mailboxes else []
        # Lanes whose backward has run; a second one would read memory that the first has used for gradients.
        self._launched: set[int] = set()

    def backward(self, number: int, grads: Sequence[Tensor | None]) -> None:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Policy(graphs=True): backward(create_graph=True) needs a forward that ran eagerly; use graphs=False"
            )
        if self._graphs.launches != self._launches:
            raise RuntimeError(
                "Policy(graphs=True): a later forward has replaced the activations that this backward needs; "
                "call backward once for each forward, before the next one"
            )
        if self._graphs.versions() != self._versions:
            raise RuntimeError(
                "Policy(graphs=True): a parameter has been modified in place since the forward; its backward needs it"
            )
        graph = self.step.lanes[number]
        if number in self._launched:  # the captured backward has used the activations' memory for gradients
            raise RuntimeError(
                "Policy(graphs=True): a second backward of one forward is not possible; use graphs=False"
            )
        self._launched.add(number)
        unreached = graph.launch_backward(grads)
        self.is_done = True
        for place, (bucket, mailbox) in enumerate(zip(graph.buckets, self._mailboxes, strict=True)):
            if bucket.flat is not None:
                without = frozenset([i for which, i in unreached if which == place])
                mailbox.post(number, Package(bucket.flat, bucket.dense, {}, bucket.event, True, without))


@dataclass(slots=True)
class _Kind:
    """`reason` is set if its steps always run eagerly."""

    text: str
    warm_ups: int = 0
    thread: int | None = None
    constants: list[Any] | None = None
    captures: int = 0
    step: StepGraph | None = None
    checks: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    report: GraphReport
    kind: _Kind
    snapshot: Snapshot

    def again_if_equal(self, outputs: Any, eagerly: Callable[[], Any], again: Callable[[], Any]) -> Any:
        """Return what `again` does if `outputs` equal the eager output; else None."""
        self.report.is_checking = True
        try:
            reason = difference(outputs, eagerly, self.snapshot)
            if reason is None:
                return again()
        finally:
            self.report.is_checking = False
        self.kind.reason = f"graphs differ from an eager step: {reason}"
        self.report.forwards -= Counter([f"graphs ({self.kind.text})"])
        self.report.note_eager(self.kind.reason)
        return None


class Graphs:
    """A lane's kinds share a place, so one forward at a time may be pending."""

    def __init__(self, tree: ModuleTree, report: GraphReport) -> None:
        self._tree, self._report = tree, report
        # By modes and shapes: a graph serves only the shapes with which it was captured.
        self._kinds: dict[Key, _Kind] = {}
        # By lane. All kinds of a lane share its memory pool, so the pools grow with lanes alone.
        self._places: dict[int, CapturePlace] = {}
        # Weak: a run that was dropped without a backward waits for none, and must not refuse the next launch.
        self._last: weakref.ref[Run] | None = None
        self.launches = 0
        self._forever = why_never(tree)
        self._tables = [table for module in tree.modules if any(map(is_tensor, (table := module.__dict__).values()))]
        # Without buffers: batch norm writes them in every forward, and no backward reads them.
        self._parameters = [tensor for i, tensor in enumerate(tree.tensors) if i not in tree.buffer_indices]

    def versions(self) -> list[int]:
        return list(map(_VERSION, self._parameters))

    @property
    def constants(self) -> list[Tensor]:
        """Plain tensors of modules (GRAPHS.md), which a graph reads where they are."""
        return [value for table in self._tables for value in table.values() if isinstance(value, Tensor)]

    def begin(self, run: Run) -> None:
        self.launches += 1
        self._last = weakref.ref(run)

    def kind_of(self, calls: Sequence[tuple[Any, Any]]) -> tuple[_Kind, list[list[Tensor]]] | None:
        """This forward's kind and the tensors in each lane's arguments; None if it must run eagerly."""
        reason = self._forever or why_not_now(self._tree) or self._why_pending()
        flattened = [tree_flatten(call) for call in calls]
        tensors = [[leaf for leaf in leaves if isinstance(leaf, Tensor)] for leaves, _ in flattened]
        if reason is None and torch.is_grad_enabled() and any(t.requires_grad for t in chain(*tensors)):
            reason = "an input needs a gradient"
        if reason is not None:
            self._report.note_eager(reason)
            return None
        key = (*modes_of(self._tree), *[(spec, *map(leaf_key, leaves)) for leaves, spec in flattened])
        try:
            kind = self._kinds.get(key)
        except TypeError:
            self._report.note_eager("an argument is neither a tensor nor hashable")
            return None
        if kind is None:
            if len(self._kinds) == MOST_KINDS:
                self._report.note_eager(f"more than {MOST_KINDS} kinds of steps; the first {MOST_KINDS} have graphs")
                return None
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors[0])
            mode = "training" if self._tree.root.training else "eval"
            kind = self._kinds[key] = _Kind(f"{mode}, lane 0 gets {shapes}")
        if kind.reason is not None:
            self._report.note_eager(kind.reason)
            return None
        return None if kind.step is None and self._warms_up(kind) else (kind, tensors)

    def _warms_up(self, kind: _Kind) -> bool:
        """A library makes handles and plans for each thread, and cannot make them in a capture (pytorch#99397)."""
        if kind.thread != threading.get_ident():
            kind.thread, kind.warm_ups = threading.get_ident(), 0
        if kind.warm_ups == WARM_UPS:
            return False
        if kind.warm_ups == 0:
            kind.constants = list(map(address_of, self.constants))
        kind.warm_ups += 1
        self._report.is_warming_up = True
        self._report.trials_left = WARM_UPS + 1 - kind.warm_ups
        self._report.note(f"eager before the capture ({kind.text})")
        return True

    def _why_pending(self) -> str | None:
        last = None if self._last is None else self._last()
        return "an earlier forward waits for its backward" if last is not None and not last.is_done else None

    def step_of(
        self, kind: _Kind, addresses: Sequence[Any], capture: Callable[[dict[int, CapturePlace]], StepGraph]
    ) -> StepGraph | None:
        """None if the kind cannot be captured."""
        if kind.step is not None and kind.step.addresses != addresses:
            kind.step = kind.constants = None
            if kind.captures == MOST_CAPTURES:
                kind.reason = f"the weights or constants have moved after each of {MOST_CAPTURES} captures"
                self._report.note_eager(kind.reason)
                return None
            if self._warms_up(kind):
                return None
        if kind.step is None:
            try:
                if kind.constants not in (None, list(map(address_of, self.constants))):
                    raise RefusedError("a tensor that is neither a parameter nor a buffer changes from step to step")
                kind.step = capture(self._places)
            except Exception as error:
                self._close_places_if_unused()
                kind.reason = f"the capture failed: {_first_line(error)}"
                self._report.note_eager(kind.reason)
                return None
            kind.captures += 1
        self._report.trials_left = 0
        self._report.note(f"graphs ({kind.text})")
        return kind.step

    def _close_places_if_unused(self) -> None:
        if all(kind.step is None for kind in self._kinds.values()):
            for place in self._places.values():
                place.close()
            self._places.clear()


def _first_line(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {(str(error) or 'no text').splitlines()[0]}"


Replica = Callable[[int, list[Tensor], dict[int, Arrival]], nn.Module]
"""Makes a lane's replica from its tensors, which wait for their arrivals."""


def capture_step(
    work: "Work", calls: Sequence[tuple[Any, Any]], replica: Replica, places: dict[int, CapturePlace]
) -> tuple[list[LaneGraph], TreeSpec, bool]:
    """Return the first fields of a StepGraph. Nothing runs in a capture, so the base stays as it is."""
    waits = all(map(waits_are_for_earlier_records, {lane.device for lane in work.lanes}))
    graphs: list[LaneGraph] = []
    specs: list[TreeSpec] = []
    for number, lane in enumerate(work.lanes):
        place = places[number] = places.get(number) or CapturePlace(lane.device)

        def forward(graph: LaneGraph, number: int = number) -> Any:
            tensors, arrivals = work.owner.sent(number), work.owner.arrivals(number) if waits else {}
            graph.buckets = _lead_to_buckets(tensors, work.sums)
            args, kwargs = _static_arguments(calls[number], graph.inputs)
            outputs = replica(number, tensors, arrivals)(*args, **kwargs)
            for arrival in dict.fromkeys(arrivals.values()):  # those of weights that the forward has not read
                arrival.wait()
            return outputs

        with use_stream(lane.device, lane.compute):
            graphs.append(LaneGraph(lane, work.inputs[number], place))
            specs.append(graphs[-1].capture(forward))
    if any(spec != specs[0] for spec in specs):
        raise RefusedError("the replicas return values of different forms")
    return graphs, specs[0], waits


def _lead_to_buckets(tensors: list[Tensor], sums: Sequence[Sum]) -> list[GraphedBucket]:
    buckets = []
    for indices, mailbox, _ in sums:
        assert mailbox.shapes is not None
        bucket = GraphedBucket(mailbox.shapes)
        outputs: Any = PackNode.apply(bucket, *[tensors[i].requires_grad_() for i in indices])
        outputs[0].grad_fn._set_sequence_nr(FIRST)  # packed at once, not at the end of the backward
        for i, output in zip(indices, outputs, strict=True):
            tensors[i] = output
        buckets.append(bucket)
    return buckets


def _reached_weights(output: Tensor, buckets: Sequence[GraphedBucket]) -> set[Weight]:
    numbers = {bucket: number for number, bucket in enumerate(buckets)}
    reached: set[Weight] = set()
    seen: set[Any] = set()
    waiting: list[tuple[Any, int]] = [(output.grad_fn, 0)]
    while waiting:
        node, place = waiting.pop()
        if getattr(type(node), "_forward_cls", None) is PackNode:
            reached.add((numbers[node.bucket], place))
        elif node is not None and node not in seen:
            seen.add(node)
            waiting += node.next_functions
    return reached


def _static_arguments(call: tuple[Any, Any], inputs: Sequence[Tensor]) -> Any:
    leaves, spec = tree_flatten(call)
    static = iter(inputs)
    return tree_unflatten([next(static) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)


@dataclass(frozen=True, slots=True)
class Work:
    """`owner` keeps the weights' memory alive."""

    lanes: Sequence[Lane]
    inputs: Sequence[Sequence[Tensor]]
    sums: Sequence[Sum]
    owner: Broadcaster


def launch(graphs: Graphs, step: StepGraph, work: Work) -> list[Any]:
    """The outputs of all lanes, in static memory: gather copies them."""
    run = Run(graphs, step, work.lanes, [mailbox for _, mailbox, _ in work.sums], work.owner)
    # The last bucket first: while the engine queues the SumNodes, another of its threads may start with the first.
    tokens = [token for _, _, token in reversed(work.sums)]
    outputs = []
    for number, lane in enumerate(work.lanes):
        with use_stream(lane.device, lane.compute):
            if not step.waits:
                work.owner.await_sent(number)
            of_lane = GraphedLane.apply(run, number, work.inputs[number], *tokens)
        outputs.append(tree_unflatten(list(of_lane), step.spec))
    return outputs
