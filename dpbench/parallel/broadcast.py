"""Send the base's tensors to the lanes, bucket by bucket, in the order of forward::

base     p0 p1 p2 ...   --one kernel-->   staging   --one message-->   flat of lane 1   --one message-->   lane 2
hub      wait compute 0, pack             near 1: copy                 above 2: copy
lane                                                                   far 1: arrival                      far 2
                                                    p0' p1' p2' ...   views of the flat; a read waits for them

Which lane gets its flat from which is the route (`routes/plan.py`). Here it is a chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from dpbench.parallel.accumulation.context import Part
from dpbench.parallel.arrival import Arrival
from dpbench.parallel.broadcast_node import connect
from dpbench.parallel.buckets import Item, plan_buckets, put
from dpbench.parallel.flat import (
    FlatCopy,
    Shape,
    StagingBuffer,
    byte_count_of,
    fits_flat,
    flat_count,
    shape_of,
    shaped_views,
)
from dpbench.parallel.lanes import Lane, Stream, record_event, record_stream, use_stream, wait_event, wait_stream
from dpbench.parallel.link_nodes import Mailbox, connect_links
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.policy import Policy, Route
from dpbench.parallel.replicatable import check_not_transformed
from dpbench.parallel.routes.nccl import send_to_all
from dpbench.parallel.routes.plan import downwards
from dpbench.parallel.transfer import copy_to
from dpbench.parallel.unchanged import ChangeWatch, Signature

STAGING_BUFFERS = 2
"""One bucket is packed while the previous one is sent."""


@dataclass(slots=True)
class Delivery:
    """The tensors for one lane, and the arrivals of those under way, by their indices."""

    tensors: list[Tensor]
    arrivals: dict[int, Arrival]

    def await_all(self) -> None:
        """Wait for all tensors on the current stream of their device."""
        for arrival in dict.fromkeys(self.arrivals.values()):  # one for each bucket, not for each tensor
            arrival.wait()
        self.arrivals.clear()


class Bucket:
    """Tensors of one dtype that are sent together, and their copies on the lanes.

    `indices` are those of the tensors in the tree, and `shapes` their shapes in a flat.
    """

    def __init__(self, indices: Sequence[int], sources: Sequence[Tensor], staging: StagingBuffer) -> None:
        self.indices = list(indices)
        self.shapes = [shape_of(source) for source in sources]
        self._byte_count = flat_count(self.shapes, sources[0].dtype) * sources[0].element_size()
        self._is_flat = len(sources) == 1 and sources[0].stride() == self.shapes[0][1]  # sent from the base's memory
        if not self._is_flat:
            staging.reserve(self._byte_count)
        self._staging = staging
        self._packed: tuple[Tensor, list[Tensor]] | None = None
        self._copies: list[FlatCopy] = []
        self.departure: Arrival | None = None

    def send(
        self, sources: list[Tensor], lanes: Sequence[Lane], order: Sequence[int], signature: Signature | None
    ) -> list[FlatCopy]:
        """Send the sources to lanes 1, 2, ... and return their copies there.

        `order` holds these lanes' numbers, each behind its parent's. A copy that already has this signature is not
        sent again.
        """
        while len(self._copies) < len(lanes) - 1:
            self._copies.append(FlatCopy(self.shapes, sources[0].dtype))
        copies = self._copies[: len(lanes) - 1]
        outdated = [
            number
            for number in order
            if signature is None or copies[number - 1].sent != signature or copies[number - 1].was_written()
        ]
        if outdated:
            self._fill(outdated, sources, lanes)
            held = [] if signature is None else [source.detach() for source in sources]
            for number in outdated:
                copies[number - 1].sent, copies[number - 1].sent_from = signature, held
        return copies

    def _fill(self, outdated: Sequence[int], sources: list[Tensor], lanes: Sequence[Lane]) -> None:
        """Fill the copies on these lanes, each behind its parent: from the base's memory, or from the parent's copy.

        On route "nccl" one send serves all devices. A parent's copy is only for lanes on its device.
        """
        base = lanes[0]
        together = [number for number in outdated if lanes[number].route is Route.NCCL]
        first_hops = [number for number in outdated if lanes[number].parent == 0 and number not in together]
        if first_hops or together:
            packed = self._pack(sources, base)
            packed_at = record_event(base.device, base.near)
            left_at = [
                self._send_to(lane, packed, [packed_at] if lanes[lane].near != base.near else [], lanes)
                for lane in first_hops
            ]
            if together:
                left_at.append(self._send_together(together, packed, packed_at, lanes))
            readers = [lanes[number].near for number in ([*first_hops, 1] if together else first_hops)]
            self._note_departure(packed, packed_at, left_at, base, readers)
        for number in outdated:
            if (parent := lanes[number].parent) != 0 and number not in together:
                held = self._copies[parent - 1]
                left = self._send_to(number, held.flat, held.arrived, lanes)
                held.pass_on(number, lanes[number].above, left, lanes[parent])

    def _note_departure(
        self, packed: Tensor, packed_at: Any, left_at: list[Any], base: Lane, readers: Sequence[Stream]
    ) -> None:
        """Keep the packed bucket until these streams have read it, and the base's tensors until they are packed."""
        if not self._is_flat:
            self._staging.leaving = left_at
        self.departure = None
        if base.near != base.compute:
            self.departure = Arrival(base.device, left_at if self._is_flat else [packed_at])
            for reader in readers:  # the staging buffer may be freed with its set while these streams read it
                record_stream(packed, reader)
        elif base.near is not None and not self._is_flat:
            record_stream(packed, base.near)  # the buffer was allocated on the stream that was the caller's then

    def _send_to(self, number: int, source: Tensor, awaited: Sequence[Any], lanes: Sequence[Lane]) -> Any:
        """Copy to a lane on the stream above and its far stream; return the event after which `source` has been read.

        The copy waits for the events `awaited`.
        """
        lane = lanes[number]
        above = lanes[lane.parent].device
        with use_stream(above, lane.above), use_stream(lane.device, lane.far):
            self._copies[number - 1].fill(source, awaited, lane)
        return record_event(above, lane.above)

    def _send_together(self, numbers: Sequence[int], packed: Tensor, packed_at: Any, lanes: Sequence[Lane]) -> Any:
        """Send to these lanes by NCCL; return the event after which `packed` has been read."""
        base, up = lanes[0], lanes[1].near
        if up != base.near:
            wait_event(up, packed_at)
        receivers = [(self._copies[number - 1], lanes[number]) for number in numbers]
        send_to_all(packed, up, receivers)
        return record_event(base.device, up)

    def _pack(self, sources: list[Tensor], base: Lane) -> Tensor:
        """The sources as one flat tensor, ready on the hub."""
        if self._is_flat:
            return sources[0].detach().as_strided((sources[0].numel(),), (1,))
        with use_stream(base.device, base.near):
            if self._packed is None:
                flat = self._staging.memory(self._byte_count, base.device).view(sources[0].dtype)
                self._packed = flat, shaped_views(flat, self.shapes)
            self._staging.wait_until_free(base.near)
            flat, views = self._packed
            torch._foreach_copy_(views, sources)
        return flat


class Broadcaster:
    """Sends a tree's tensors, and keeps the memory in which they arrive on the lanes."""

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
        self._buckets = [
            Bucket(indices, [tensors[i] for i in indices], buffers[number % STAGING_BUFFERS])
            for number, indices in enumerate(flat)
        ]
        self._unbucketed = [indices[0] for indices in planned if not fits_flat(tensors[indices[0]])]
        total = sum(byte_count_of(tensor) for tensor in tensors)
        self._has_overlap = total > policy.bucket_bytes  # else one wait for all costs less than a wait at every read
        self._always_sent = tree.buffer_indices  # a training batch norm writes its buffers without raising a version
        self._frozen = [i for i, tensor in enumerate(tensors) if not (tensor.requires_grad or i in tree.buffer_indices)]

    def broadcast(
        self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane], part: Part, watch: ChangeWatch | None
    ) -> list[Delivery]:
        """Send all tensors, but those that `watch` shows to be unchanged; return for each lane its replica's tensors.

        The first lane's tensors share the base's memory. Without grad mode they are the base's own, as in stock.
        In grad mode no parameter is the base's own, and tensors that require grad are no leaves. One autograd node
        per bucket leads back to the base. It will sum the gradients on the streams of `reduce_lanes`.
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
            for bucket in self._buckets:
                self._connect(bucket.indices, bucket.shapes, tensors, reduce_lanes, part)
            for i in self._unbucketed:
                self._connect([i], None, tensors, reduce_lanes, part)
        return deliveries

    def _connect(
        self,
        indices: Sequence[int],
        shapes: Sequence[Shape] | None,
        tensors: Sequence[list[Tensor]],
        lanes: Sequence[Lane],
        part: Part,
    ) -> None:
        """Lead the lanes' tensors that require grad back to the base's, with one sum for all lanes."""
        wanted = [i for i in indices if self._tensors[i].requires_grad]
        if not wanted:
            return
        if not any(lane.is_remote for lane in lanes) and not part.sums.is_used:
            connect(wanted, tensors, self._policy.overlap_reduce)
            return
        if shapes is not None and len(wanted) < len(indices):
            shapes = [shape for i, shape in zip(indices, shapes, strict=True) if self._tensors[i].requires_grad]
        mailbox = Mailbox(lanes, shapes, part)
        connect_links(wanted, tensors, mailbox, self._policy.overlap_reduce)

    def _send_all(self, lanes: Sequence[Lane], deliveries: Sequence[Delivery], watch: ChangeWatch | None) -> None:
        wait_stream(lanes[0].near, lanes[0].compute)
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
        for delivery, lane, copy in zip(deliveries[1:], lanes[1:], copies, strict=True):
            put(copy.new_tensors(lane, is_watched), delivery.tensors, bucket.indices)
            if copy.arrival is not None:
                delivery.arrivals.update(dict.fromkeys(bucket.indices, copy.arrival))
        if bucket.departure is not None:
            deliveries[0].arrivals.update(dict.fromkeys(bucket.indices, bucket.departure))


def _send_unbucketed(i: int, source: Tensor, lanes: Sequence[Lane], deliveries: Sequence[Delivery]) -> None:
    """Send a tensor that no flat can hold, such as a sparse one, on the compute streams.

    Every forward makes new copies.
    """
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
