"""Send the base's tensors to the lanes, bucket by bucket, in the order of forward::

base     p0 p1 p2 ...   --one kernel-->   staging   --one message-->   flat of lane 1   --one message-->   lane 2
hub      wait compute 0, pack             near 1: copy                 above 2: copy
lane                                                                   far 1: arrival                      far 2
                                                    p0' p1' p2' ...   views of the flat; a read waits for them

On one device an autograd node for each bucket leads back to the base, and its adjoint sums the lanes' gradients:

    forward    base's tensors  --identity-->  lane 0's, lane 1's, ...        one node per bucket
    backward   base's gradients  <--sum--     lane 0's, lane 1's, ...

Over links the adjoints pack, send and sum the lanes' gradients:

    forward    base's tensors ──> SumNode ──token──> LaneNode 0 ──> lane 0's tensors       one SumNode per bucket
                                            └──────> LaneNode 1 ──> lane 1's tensors       and a LaneNode for each lane

    backward   LaneNode i    lane i's compute stream    pack the bucket's gradients into one flat ──> mailbox
               SumNode       hub                        take the flats; copy them here; add them to lane 0's flat

The token carries no gradient: it makes the engine run the SumNode after the LaneNodes, without an event for each
gradient.

The engine takes the ready node with the highest sequence number first, so the nodes' numbers are raised.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import Function

from dpbench.parallel.accumulate import Grads, Part
from dpbench.parallel.buckets import (
    Bucket,
    Item,
    Shape,
    StagingBuffer,
    byte_count_of,
    fits_flat,
    flat_count,
    plan_buckets,
    put,
    shaped_views,
)
from dpbench.parallel.lanes import Lane, record_event, use_stream, wait_stream
from dpbench.parallel.module_tree import ChangeWatch, ModuleTree, check_not_transformed
from dpbench.parallel.policy import Policy
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
from dpbench.parallel.routes import downwards
from dpbench.parallel.tables import Arrival
from dpbench.parallel.transfer import copy_to

FIRST = 2**62


def connect(wanted: Sequence[int], tensors: Sequence[list[Tensor]], is_early: bool) -> None:
    """Replace every lane's `wanted` tensors by outputs of one autograd node.

    The node's inputs are the first lane's tensors. With `is_early` the node runs in backward as soon as its gradients
    are there.
    """
    copies = [of_lane[i] for of_lane in tensors[1:] for i in wanted]
    outputs = BroadcastNode.apply(copies, *[tensors[0][i] for i in wanted])
    if is_early:
        outputs[0].grad_fn._set_sequence_nr(FIRST)
    for number, of_lane in enumerate(tensors):
        put(outputs[number * len(wanted) : (number + 1) * len(wanted)], of_lane, wanted)


class BroadcastNode(Function):
    """Broadcasts the base's tensors to all lanes; backward sums over the lanes."""

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
    """One bucket's lanes and shapes, and the packages of each backward pass, by its graph task.

    `shapes` are those of the tensors in a flat; None if no flat can hold them.
    """

    lanes: Sequence[Lane]
    shapes: Sequence[Shape] | None
    part: Part
    packages: dict[int, dict[int, Package]] = field(default_factory=dict)

    def post(self, number: int, package: Package) -> None:
        self.packages.setdefault(torch._C._current_graph_task_id(), {})[number] = package

    def take(self, sum_node: Any) -> list[tuple[Lane, Package]]:
        """The packages of the present pass, in the order of the lanes; some lanes may have sent none."""
        packages = self.packages.pop(torch._C._current_graph_task_id(), {})
        having = [(number, self.lanes[number], package) for number, package in packages.items()]
        if self.part.sums.is_used and self.shapes is not None:
            having += self.part.rest(sum_node, self.lanes, self.shapes)
        return [(lane, package) for _, lane, package in sorted(having, key=itemgetter(0))]


def connect_links(wanted: Sequence[int], tensors: Sequence[list[Tensor]], mailbox: Mailbox, is_early: bool) -> None:
    """Like `connect`, with a SumNode for the first lane's tensors and a LaneNode for each lane."""
    token = sum_token([tensors[0][i] for i in wanted], mailbox, is_early)
    for number, of_lane in enumerate(tensors):
        outputs = LaneNode.apply(token, mailbox, number, [of_lane[i] for i in wanted])
        if is_early:
            outputs[0].grad_fn._set_sequence_nr(FIRST)
        put(outputs, of_lane, wanted)


def sum_token(bases: Sequence[Tensor], mailbox: Mailbox, is_early: bool) -> Tensor:
    """The output of a new SumNode, which runs when all nodes that got the token have run."""
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
        others = {i: grad for i, grad in enumerate(grads) if grad is not None and i not in dense}
        flat = None
        if mailbox.part.sums.is_used and shapes is not None:
            present = {i: grad for i in dense if (grad := grads[i]) is not None}
            dense, flat = _accumulate(mailbox, ctx.number, ctx.next_functions[0][0], present)
        if dense and flat is None:
            flat = _pack([grads[i] for i in dense], [shapes[i] for i in dense], lane)
        ready = record_event(lane.device, lane.compute) if is_apart(mailbox.lanes[0]) else None
        mailbox.post(ctx.number, Package(flat, dense, others, ready))
        return None, None, None, None


def _accumulate(mailbox: Mailbox, number: int, sum_node: Any, grads: Grads) -> tuple[tuple[int, ...], Tensor | None]:
    """Keep a lane's gradients; return what is to be reduced now, and its flat if it has one."""
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
            others = [copy_other(i, package, lane, base) for lane, package in having if i in package.others]
            if others:
                sums[i] = sum_each([sums[i], *others])
                record_for_optimizer(sums[i], base)
            elif sums[i] is None:
                sums[i] = zeros_for_hooks(node)
                record_for_optimizer(sums[i], base)
        return (None, *sums)


def _keep_until_the_end(total: Tensor) -> None:
    """Keep the sum's memory until the backward pass ends. Then the compute stream has waited for the hub.

    The hub may read it last: to add it to another pass's gradient, or in a hook.
    """
    torch.autograd.Variable._execution_engine.queue_callback(partial(_drop, total))


def _drop(total: Tensor) -> None:
    """Do nothing: the engine forgets this call, and the sum with it, after the pass."""


STAGING_BUFFERS = 2
"""One bucket is packed while the previous one is sent."""


@dataclass(slots=True)
class Delivery:
    tensors: list[Tensor]
    arrivals: dict[int, Arrival]

    def await_all(self) -> None:
        """Wait for all tensors on the current stream of their device."""
        for arrival in dict.fromkeys(self.arrivals.values()):  # one for each bucket, not for each tensor
            arrival.wait()
        self.arrivals.clear()


Sum = tuple[list[int], Mailbox, Tensor]
"""A bucket's tensors that need gradients, their mailbox, and the token of their SumNode."""


class Broadcaster:
    def __init__(self, tree: ModuleTree, policy: Policy) -> None:
        self._policy = policy
        self._tensors = tensors = tree.tensors
        planned = plan_buckets(
            [_item(tensor, i in tree.buffer_indices, policy) for i, tensor in enumerate(tensors)],
            policy.bucket_bytes,
            policy.first_bucket_bytes,
        )
        flat = [indices for indices in planned if fits_flat(tensors[indices[0]])]
        buffers = [StagingBuffer() for _ in range(STAGING_BUFFERS)]
        self._joined: set[int] = set()
        self._buckets = [
            Bucket(indices, [tensors[i] for i in indices], buffers[number % STAGING_BUFFERS], self._joined)
            for number, indices in enumerate(flat)
        ]
        self._unbucketed = [indices[0] for indices in planned if not fits_flat(tensors[indices[0]])]
        trained = [self._wanted(bucket.indices, bucket.shapes) for bucket in self._buckets]
        trained += [self._wanted([i], None) for i in self._unbucketed]
        self._trained = [(wanted, shapes) for wanted, shapes in trained if wanted]
        total = sum(byte_count_of(tensor) for tensor in tensors)
        self._has_overlap = total > policy.bucket_bytes  # else one wait for all costs less than a wait at every read
        self._always_sent = tree.buffer_indices  # a training batch norm writes its buffers without raising a version
        self._frozen = [i for i, tensor in enumerate(tensors) if not (tensor.requires_grad or i in tree.buffer_indices)]

    def _wanted(
        self, indices: Sequence[int], shapes: Sequence[Shape] | None
    ) -> tuple[list[int], Sequence[Shape] | None]:
        wanted = [i for i in indices if self._tensors[i].requires_grad]
        if shapes is not None and len(wanted) < len(indices):
            shapes = [shape for i, shape in zip(indices, shapes, strict=True) if i in wanted]
        return wanted, shapes

    def broadcast(
        self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane], part: Part, watch: ChangeWatch | None
    ) -> list[Delivery]:
        """Send all tensors that `watch` does not show to be unchanged; return each lane's tensors.

        The first lane's tensors share the base's memory. Without grad mode they are the base's own, as in stock. In
        grad mode no parameter is the base's own, and tensors that require grad are no leaves.
        """
        check_not_transformed(self._tensors)
        if torch._C._are_functorch_transforms_active():
            # The weights' nodes belong outside the transforms: what these return then has a graph that leads there.
            with temporarily_clear_interpreter_stack():
                return self.broadcast(lanes, reduce_lanes, part, watch)
        deliveries = [Delivery(list(self._tensors), {}) for _ in lanes]
        has_graph = torch.is_grad_enabled()
        # No autograd, and ordinary tensors even under inference mode, because the memory kept here also serves later
        # training.
        with torch.inference_mode(False), torch.no_grad():
            if has_graph:
                for i in self._frozen:
                    deliveries[0].tensors[i] = self._tensors[i].detach()
            if len(lanes) > 1:
                self._send_all(lanes, deliveries, watch)
        if has_graph:
            tensors = [delivery.tensors for delivery in deliveries]
            for wanted, shapes in self._trained:
                self._connect(wanted, shapes, tensors, reduce_lanes, part)
        return deliveries

    def _connect(
        self,
        wanted: list[int],
        shapes: Sequence[Shape] | None,
        tensors: Sequence[list[Tensor]],
        lanes: Sequence[Lane],
        part: Part,
    ) -> None:
        if not any(lane.is_remote for lane in lanes) and not part.sums.is_used:
            connect(wanted, tensors, self._policy.overlap_reduce)
            return
        mailbox = Mailbox(lanes, shapes, part)
        connect_links(wanted, tensors, mailbox, self._policy.overlap_reduce)

    def sums(self, lanes: Sequence[Lane], part: Part) -> list[Sum]:
        """New SumNodes for lanes that post all buckets at once, so all nodes are ready together. The engine takes them
        by their sequence numbers: the last layers' bucket, whose gradients are there first, has the highest.
        """
        sums: list[Sum] = []
        for number, (wanted, shapes) in enumerate(self._trained):
            mailbox = Mailbox(lanes, shapes, part)
            token: Any = sum_token([self._tensors[i] for i in wanted], mailbox, is_early=False)
            token.grad_fn._set_sequence_nr(FIRST + number)
            sums.append((wanted, mailbox, token))
        return sums

    def addresses(self) -> list[int]:
        """Where the base's tensors and the lanes' copies lie."""
        return [
            *map(Tensor.data_ptr, self._tensors),
            *[address for bucket in self._buckets for address in bucket.addresses()],
        ]

    def send(self, lanes: Sequence[Lane]) -> None:
        """Send all tensors, for readers that know where they arrive; all must fit a flat."""
        with torch.inference_mode(False), torch.no_grad():
            self._send_all(lanes, (), None)

    def sent(self, number: int) -> list[Tensor]:
        """New tensors over the values that a lane was sent; lane 0's are over the base's own."""
        tensors = [tensor.detach() for tensor in self._tensors]
        for bucket in self._buckets if number else ():
            put(bucket.copy_on(number).new_tensors(is_watched=False), tensors, bucket.indices)
        return tensors

    def arrivals(self, number: int) -> dict[int, Arrival]:
        arrivals: dict[int, Arrival] = {}
        for bucket in self._buckets:
            arrival = bucket.copy_on(number).arrival if number else bucket.departure
            if arrival is not None:
                arrivals.update(dict.fromkeys(bucket.indices, arrival))
        return arrivals

    def await_sent(self, number: int) -> None:
        """Let a lane's current stream wait for all buckets.

        A stream's last event is behind its others, so only the last bucket of each kind is waited for.
        """
        departures = {bucket.is_flat: bucket.departure for bucket in self._buckets}.values()
        for arrival in [bucket.copy_on(number).arrival for bucket in self._buckets[-1:]] if number else departures:
            if arrival is not None:
                arrival.wait()

    def _send_all(self, lanes: Sequence[Lane], deliveries: Sequence[Delivery], watch: ChangeWatch | None) -> None:
        wait_stream(lanes[0].near, lanes[0].compute)
        self._joined.clear()
        order = downwards(tuple([lane.parent for lane in lanes]))[1:]
        for bucket in self._buckets:
            self._send(bucket, lanes, order, deliveries, watch)
        for i in self._unbucketed:
            _send_unbucketed(i, self._tensors[i], lanes, deliveries[1:])
        if not self._has_overlap:
            for delivery in deliveries:
                delivery.await_all()

    def _send(
        self,
        bucket: Bucket,
        lanes: Sequence[Lane],
        order: Sequence[int],
        deliveries: Sequence[Delivery],
        watch: ChangeWatch | None,
    ) -> None:
        sources = [self._tensors[i] for i in bucket.indices]
        is_watched = watch is not None and self._always_sent.isdisjoint(bucket.indices)
        signature = watch.signature(sources) if watch is not None and is_watched else None
        copies = bucket.send(sources, lanes, order, signature)
        for lane, copy in zip(lanes[1:], copies, strict=True):
            if lane.compute is not None:
                copy.note_reader(lane)
        if not deliveries:
            return
        for delivery, copy in zip(deliveries[1:], copies, strict=True):
            put(copy.new_tensors(is_watched), delivery.tensors, bucket.indices)
            if copy.arrival is not None:
                delivery.arrivals.update(dict.fromkeys(bucket.indices, copy.arrival))
        if bucket.departure is not None:
            deliveries[0].arrivals.update(dict.fromkeys(bucket.indices, bucket.departure))


def _send_unbucketed(i: int, source: Tensor, lanes: Sequence[Lane], deliveries: Sequence[Delivery]) -> None:
    for lane, delivery in zip(lanes[1:], deliveries, strict=True):
        detached = source.detach()
        delivery.tensors[i] = copy_to(detached, lane.device, lane.is_staged)


def _item(tensor: Tensor, is_buffer: bool, policy: Policy) -> Item:
    if not policy.coalesce or not fits_flat(tensor):
        return Item(None, byte_count_of(tensor))
    # Buffers have buckets of their own, as in stock: a buffer that a forward resizes, as observers do, grows over the
    # memory behind it. Under `skip_unchanged` trained parameters are apart from frozen ones, which can be skipped.
    kind = (is_buffer, policy.skip_unchanged and tensor.requires_grad)
    return Item((tensor.dtype, kind), byte_count_of(tensor))
