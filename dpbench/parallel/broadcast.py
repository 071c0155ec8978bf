"""Send the base's tensors to the lanes, bucket by bucket, in the order of forward::

base     p0 p1 p2 ...   --one kernel-->   staging   --one message-->   flat of lane 1   --one message-->   lane 2
hub      wait compute 0, pack             near 1: copy                 above 2: copy
lane                                                                   far 1: arrival                      far 2
                                                    p0' p1' p2' ...   views of the flat; a read waits for them
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from dpbench.parallel.accumulate import Part
from dpbench.parallel.buckets import Bucket, StagingBuffer
from dpbench.parallel.gradient_nodes import FIRST, Mailbox, connect, connect_links, sum_token
from dpbench.parallel.lanes import Lane, use_stream, wait_stream
from dpbench.parallel.layout import Item, Shape, byte_count_of, fits_flat, plan_buckets, put, with_memory_each
from dpbench.parallel.module_tree import ChangeWatch, ModuleTree, check_not_transformed
from dpbench.parallel.policy import Policy
from dpbench.parallel.routes import downwards
from dpbench.parallel.tables import Arrival
from dpbench.parallel.transfer import copy_to

STAGING_BUFFERS = 2
"""One bucket is packed while the previous one is sent."""
LARGE_BYTES = 256 * 1024
"""A resizable buffer of this size is sent alone, so that it need not be copied out of its flat."""


@dataclass(slots=True)
class Delivery:
    tensors: list[Tensor]
    arrivals: dict[int, Arrival]

    def await_all(self) -> None:
        """Wait for all tensors on the current stream of their device."""
        for arrival in dict.fromkeys(self.arrivals.values()):  # one for each bucket, not for each tensor
            arrival.wait()
        self.arrivals.clear()

    def take_out(self, indices: Sequence[int], lane: Lane) -> None:
        """Copy these tensors out of their flat, on the compute stream."""
        with use_stream(lane.device, lane.compute):
            if (arrival := self.arrivals.get(indices[0])) is not None:
                arrival.wait()
            put(with_memory_each([self.tensors[i] for i in indices]), self.tensors, indices)


Sum = tuple[list[int], Mailbox, Tensor]
"""A bucket's tensors that need gradients, their mailbox, and their SumNode's token."""


class Broadcaster:
    def __init__(self, tree: ModuleTree, policy: Policy) -> None:
        self._policy = policy
        self._tree, self._tensors = tree, tree.tensors
        tensors = tree.tensors
        planned = plan_buckets(
            [_item(i, tree, policy) for i in range(len(tensors))],
            policy.bucket_bytes,
            policy.first_bucket_bytes,
        )
        flat = [indices for indices in planned if fits_flat(tensors[indices[0]])]
        buffers = [StagingBuffer() for _ in range(STAGING_BUFFERS)]
        # Ids of the lanes that have waited for their readers in this forward. One wait serves all buckets.
        self._joined: set[int] = set()
        self._buckets = [
            Bucket(indices, [tensors[i] for i in indices], buffers[number % STAGING_BUFFERS], self._joined)
            for number, indices in enumerate(flat)
        ]
        self._unbucketed = [indices[0] for indices in planned if not fits_flat(tensors[indices[0]])]
        trained = [self._wanted(bucket.indices, bucket.shapes) for bucket in self._buckets]
        trained += [self._wanted([i], None) for i in self._unbucketed]
        self._trained = [(indices, shapes) for indices, shapes in trained if indices]
        total = sum(byte_count_of(tensor) for tensor in tensors)
        self._has_overlap = total > policy.bucket_bytes  # else one wait for all costs less than a wait at every read
        resizable = [[i for i in indices if i in tree.resizable_indices] for indices in flat if len(indices) > 1]
        self._resizable = [indices for indices in resizable if indices]
        self._always_sent = tree.buffer_indices  # a training batch norm writes its buffers without raising a version
        self._frozen = [i for i, tensor in enumerate(tensors) if not (tensor.requires_grad or i in tree.buffer_indices)]

    def _wanted(
        self, indices: Sequence[int], shapes: Sequence[Shape] | None
    ) -> tuple[list[int], Sequence[Shape] | None]:
        trained = [i for i in indices if self._tensors[i].requires_grad]
        if shapes is not None and len(trained) < len(indices):
            shapes = [shape for i, shape in zip(indices, shapes, strict=True) if i in trained]
        return trained, shapes

    def broadcast(
        self, lanes: Sequence[Lane], reduce_lanes: Sequence[Lane], part: Part, watch: ChangeWatch | None
    ) -> list[Delivery]:
        """Send all tensors that `watch` does not show to be unchanged; return each lane's tensors.

        Without grad mode the first lane's are the base's own, as in stock. In grad mode they share the base's memory:
        no parameter is the base's own, and tensors that require grad are no leaves.
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
            for indices, shapes in self._trained:
                self._connect(indices, shapes, tensors, reduce_lanes, part)
        return deliveries

    def _connect(
        self,
        trained: list[int],
        shapes: Sequence[Shape] | None,
        tensors: Sequence[list[Tensor]],
        lanes: Sequence[Lane],
        part: Part,
    ) -> None:
        if not any(lane.is_remote for lane in lanes) and not part.sums.is_used:
            connect(trained, tensors, self._policy.overlap_reduce)
            return
        mailbox = Mailbox(lanes, shapes, part)
        connect_links(trained, tensors, mailbox, self._policy.overlap_reduce)

    def sums(self, lanes: Sequence[Lane], part: Part) -> list[Sum]:
        """New SumNodes for lanes that post all buckets at once, so all nodes are ready together.

        The last layers' bucket, whose gradients are there first, has the highest sequence number.
        """
        sums: list[Sum] = []
        for number, (indices, shapes) in enumerate(self._trained):
            mailbox = Mailbox(lanes, shapes, part)
            token: Any = sum_token([self._tensors[i] for i in indices], mailbox, is_early=False)
            token.grad_fn._set_sequence_nr(FIRST + number)
            sums.append((indices, mailbox, token))
        return sums

    def check_sizes(self, tensors: Sequence[Tensor]) -> None:
        """Raise RuntimeError if one of lane 1's tensors has grown within its flat."""
        before, now = self._tree.counts, list(map(Tensor.numel, tensors))
        for bucket in self._buckets:
            flat = bucket.copy_on(1).flat
            memory = range(flat.data_ptr(), flat.data_ptr() + flat.nbytes)
            for i in bucket.indices if len(bucket.indices) > 1 else ():
                if now[i] > before[i] and tensors[i].data_ptr() in memory:
                    raise RuntimeError(
                        f"the forward has resized a parameter from {before[i]} items to {now[i]}, over the "
                        "parameters behind it on this lane; make it a buffer, or use Policy(coalesce=False)"
                    )

    def addresses(self) -> list[int]:
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
        """A stream's last event is behind its others, so the wait is for the last bucket of each kind only."""
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
        for indices in self._resizable:
            for lane, delivery in zip(lanes[1:], deliveries[1:], strict=False):
                delivery.take_out(indices, lane)
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


def _item(index: int, tree: ModuleTree, policy: Policy) -> Item:
    tensor = tree.tensors[index]
    byte_count = byte_count_of(tensor)
    is_alone = index in tree.resizable_indices and byte_count >= LARGE_BYTES
    if is_alone or not policy.coalesce or not fits_flat(tensor):
        return Item(None, byte_count)
    # Buffers have buckets of their own, as in stock: they are sent in every forward. Under `skip_unchanged` trained
    # parameters are apart from frozen ones, which can be skipped.
    kind = (index in tree.buffer_indices, policy.skip_unchanged and tensor.requires_grad)
    return Item((tensor.dtype, kind), byte_count)
