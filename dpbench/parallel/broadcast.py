"""Hand the base's tensors out to the lanes, bucket by bucket, in the order in which forward will want them::

base     p0 p1 p2 ...   --one kernel-->   stage   --one message per lane-->   flat     on the lane
hub      wait compute 0, pack             near i: copy                        far i: arrival
lane                                                     p0' p1' p2' ...   views of the flat, awaited when read
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.arrival import Arrival
from dpbench.parallel.broadcast_node import connect
from dpbench.parallel.buckets import Item, plan_buckets, put
from dpbench.parallel.flat import FlatCopy, StagingBuffer, shape_of, shaped_views
from dpbench.parallel.lanes import Lane, record_event, record_stream, use_stream, wait_stream
from dpbench.parallel.module_tree import ModuleTree
from dpbench.parallel.policy import Policy
from dpbench.parallel.replicatable import check_not_transformed
from dpbench.parallel.transfer import copy_to
from dpbench.parallel.unchanged import ChangeWatch, Signature

STAGES = 2
"""One bucket is packed while the last one leaves."""


@dataclass(slots=True)
class Delivery:
    """What one lane gets: the tree's tensors, and those of them that are still under way."""

    tensors: list[Tensor]
    arrivals: dict[int, Arrival]

    def await_all(self) -> None:
        for arrival in self.arrivals.values():
            arrival.wait()
        self.arrivals.clear()


class Bucket:
    """Tensors of one dtype that travel together, by their indices in the tree, and their copies on the lanes."""

    def __init__(self, indices: Sequence[int], sources: Sequence[Tensor], stage: StagingBuffer) -> None:
        self.indices = list(indices)
        self._shapes = [shape_of(source) for source in sources]
        self._byte_count = sum(_byte_count(source) for source in sources)
        self._is_flat = len(sources) == 1 and sources[0].stride() == self._shapes[0][1]  # as it lies in the base
        if not self._is_flat:
            stage.reserve(self._byte_count)
        self._stage = stage
        self._packed: tuple[Tensor, list[Tensor]] | None = None
        self._copies: list[FlatCopy] = []
        self.departure: Arrival | None = None

    def send(self, sources: list[Tensor], lanes: Sequence[Lane], signature: Signature | None) -> list[FlatCopy]:
        """Brings the sources to lanes 1, 2, ...; a copy that has them by its signature is left alone."""
        while len(self._copies) < len(lanes) - 1:
            self._copies.append(FlatCopy(self._shapes, sources[0].dtype))
        copies = self._copies[: len(lanes) - 1]
        outdated = [
            (copy, lane)
            for copy, lane in zip(copies, lanes[1:], strict=True)
            if signature is None or copy.sent != signature or copy.was_written()
        ]
        if outdated:
            base = lanes[0]
            packed = self._pack(sources, base)
            packed_at = record_event(base.device, base.near)
            left_at = [self._send_to(copy, lane, base, packed) for copy, lane in outdated]
            held = [] if signature is None else [source.detach() for source in sources]
            for copy, _ in outdated:
                copy.sent, copy.sent_from = signature, held
            if not self._is_flat:
                self._stage.leaving = left_at
            self.departure = None
            if base.near != base.compute:
                self.departure = Arrival(base.device, left_at if self._is_flat else [packed_at])
                for _, lane in outdated:  # the stage may go with its set, while another thread's hub goes on
                    record_stream(packed, lane.near)
            elif base.near is not None and not self._is_flat:
                record_stream(packed, base.near)  # the stage was made on the stream that the caller had then
        return copies

    def _send_to(self, copy: FlatCopy, lane: Lane, base: Lane, packed: Tensor) -> Any:
        """Has the lane's side streams copy; the event at which its near stream has read `packed`."""
        wait_stream(lane.near, base.near)
        with use_stream(base.device, lane.near), use_stream(lane.device, lane.far):
            copy.fill(packed, lane)
        return record_event(base.device, lane.near)

    def _pack(self, sources: list[Tensor], base: Lane) -> Tensor:
        """The sources as one flat tensor, ready on the hub."""
        if self._is_flat:
            return sources[0].detach().as_strided((sources[0].numel(),), (1,))
        with use_stream(base.device, base.near):
            if self._packed is None:
                flat = self._stage.memory(self._byte_count, base.device).view(sources[0].dtype)
                self._packed = flat, shaped_views(flat, self._shapes)
            self._stage.wait_until_free(base.near)
            flat, views = self._packed
            torch._foreach_copy_(views, sources)
        return flat


class Broadcaster:
    """Sends a tree's tensors, and keeps the memory in which they arrive."""

    def __init__(self, tree: ModuleTree, policy: Policy, watch: ChangeWatch | None) -> None:
        self._policy = policy
        self._watch = watch
        self._tensors = tensors = tree.tensors
        planned = plan_buckets(
            [_item(tensor, i in tree.buffer_indices, policy) for i, tensor in enumerate(tensors)],
            policy.bucket_bytes,
            policy.first_bucket_bytes,
        )
        flat = [indices for indices in planned if _fits_flat(tensors[indices[0]])]
        stages = [StagingBuffer() for _ in range(STAGES)]
        self._buckets = [
            Bucket(indices, [tensors[i] for i in indices], stages[number % STAGES])
            for number, indices in enumerate(flat)
        ]
        self._unbucketed = [indices[0] for indices in planned if not _fits_flat(tensors[indices[0]])]
        total = sum(_byte_count(tensor) for tensor in tensors)
        self.has_overlap = total > policy.bucket_bytes  # else waiting at once costs less than at every read
        self._always_sent = tree.buffer_indices  # a training batch norm writes its buffers without a trace
        self._frozen = [i for i, tensor in enumerate(tensors) if not (tensor.requires_grad or i in tree.buffer_indices)]

    def broadcast(self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane]) -> list[Delivery]:
        """Per lane, the tensors as its replica is to see them.

        The first lane shares the base's memory. In grad mode what requires grad is no leaf: one autograd node
        per bucket leads back to the base, and will add the gradients up on the streams of `reduce_lanes`. Then no
        parameter is the base's own, whereas without grad mode all are, as in stock.
        """
        check_not_transformed(self._tensors)
        deliveries = [Delivery(list(self._tensors), {}) for _ in lanes]
        has_graph = torch.is_grad_enabled()
        # No autograd, and ordinary tensors even under inference mode or a transform of `torch.func`: what is kept
        # must serve later training too.
        with torch.inference_mode(False), torch.no_grad(), torch._C._DisableFuncTorch():
            if has_graph:
                for i in self._frozen:
                    deliveries[0].tensors[i] = self._tensors[i].detach()
            if len(lanes) > 1:
                self._send_all(lanes, deliveries)
        if has_graph:
            groups = [*(bucket.indices for bucket in self._buckets), *([i] for i in self._unbucketed)]
            is_early = self._policy.overlap_reduce
            for group in groups:
                connect(group, [delivery.tensors for delivery in deliveries], reduce_lanes, is_early)
        return deliveries

    def _send_all(self, lanes: Sequence[Lane], deliveries: Sequence[Delivery]) -> None:
        wait_stream(lanes[0].near, lanes[0].compute)
        for bucket in self._buckets:
            self._send(bucket, lanes, deliveries)
        for i in self._unbucketed:
            _send_unbucketed(i, self._tensors[i], lanes, deliveries[1:])
        if not self.has_overlap:
            for delivery in deliveries:
                delivery.await_all()

    def _send(self, bucket: Bucket, lanes: Sequence[Lane], deliveries: Sequence[Delivery]) -> None:
        sources = [self._tensors[i] for i in bucket.indices]
        is_watched = self._watch is not None and self._always_sent.isdisjoint(bucket.indices)
        signature = self._watch.signature(sources) if self._watch is not None and is_watched else None
        copies = bucket.send(sources, lanes, signature)
        for delivery, lane, copy in zip(deliveries[1:], lanes[1:], copies, strict=True):
            put(copy.new_tensors(lane, is_watched), delivery.tensors, bucket.indices)
            if copy.arrival is not None:
                delivery.arrivals.update(dict.fromkeys(bucket.indices, copy.arrival))
        if bucket.departure is not None:
            deliveries[0].arrivals.update(dict.fromkeys(bucket.indices, bucket.departure))


def _send_unbucketed(i: int, source: Tensor, lanes: Sequence[Lane], deliveries: Sequence[Delivery]) -> None:
    """A tensor that no flat can hold, as a sparse one: a new copy every forward, on the lanes' own streams."""
    for lane, delivery in zip(lanes[1:], deliveries, strict=True):
        alike = source.detach()
        is_here = lane.device == source.device
        delivery.tensors[i] = alike.clone() if is_here else copy_to(alike, lane.device, lane.is_staged)


def _item(tensor: Tensor, is_buffer: bool, policy: Policy) -> Item:
    if not policy.coalesce or not _fits_flat(tensor):
        return Item(None, _byte_count(tensor))
    # Buffers travel apart, as in stock: one that a forward resizes, as observers do, grows over what lies behind it.
    # And what may be skipped travels apart from what may not.
    fate = (is_buffer, policy.skip_unchanged and tensor.requires_grad)
    return Item((tensor.dtype, fate), _byte_count(tensor))


def _byte_count(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _fits_flat(tensor: Tensor) -> bool:
    """Whether the tensor is an ordinary one of its device: dense, and of no subclass with a mind of its own.

    An empty one is there to be resized, so it needs memory of its own.
    """
    ordinary = (torch.nn.Parameter, type(torch.empty(0, device=tensor.device)))
    is_plain = tensor.layout is torch.strided and not tensor.is_quantized and tensor.numel() > 0
    return is_plain and type(tensor) in ordinary
