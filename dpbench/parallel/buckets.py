"""Buckets, and the memory that they keep between forwards.

A replica gets ``template.data``. It has its own version counter, so an in-place write to one weight does not invalidate
another.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.lanes import Lane, Stream, record_event, record_stream, use_stream, wait_event, wait_stream
from dpbench.parallel.layout import Shape, cut, flat_count, shape_of, shaped_views
from dpbench.parallel.module_tree import Signature
from dpbench.parallel.policy import Route
from dpbench.parallel.reference_counts import count_storage_uses
from dpbench.parallel.tables import Arrival
from dpbench.parallel.transfer import copy_into, send_to_all


class FlatCopy:
    """Producer: the lane's far stream. Consumers: the compute streams of the forwards that read the tensors, and the
    streams above the lane's children. `joined` has the lanes whose far stream has waited for their compute stream in
    this forward.
    """

    def __init__(self, shapes: Sequence[Shape], dtype: torch.dtype, joined: set[int]) -> None:
        self._shapes = shapes
        self._dtype = dtype
        self._joined = joined
        self._templates: list[Tensor] = []
        self._watched: list[Tensor] = []  # over the templates' memory; their version counters show a replica's writes
        self._readers: list[Stream] = []
        self._leaving: dict[int, Any] = {}  # for each child the event after which it has read the flat
        self._leaves_on: list[Stream] = []  # the streams of these events, which `record_stream` knows
        self.arrived: list[Any] = []  # an event for each piece, or one for all
        # Each forward records these events again, because graphs wait for them.
        self._last_arrived: Any = None  # behind the arrival of the last piece
        self.left: dict[int, Any] = {}  # behind the last read of the source, by parent: each has a device of its own
        self.arrival: Arrival | None = None
        self.sent: Any = None  # the signature (`ChangeWatch`) of the base's tensors that the values come from
        self.sent_from: list[Tensor] = []  # keeps their memory alive, so that no other tensor gets the same signature

    def fill(self, source: Tensor, awaited: Sequence[Any], lane: Lane) -> None:
        """Copy a flat of the same size here, on the stream above and the far stream, which must be current.

        `awaited` has an event for each of the source's pieces, or one for all.
        """
        self.prepare(len(source), lane)
        is_cut = lane.has_pieces and (lane.parent != 0 or bool(lane.children))
        ends = (cut(self.flat), cut(source)) if is_cut else ([self.flat], [source])
        for end, start, event in zip_longest(*ends, awaited):
            if event is not None:
                wait_event(lane.above, event)
            self.receive(end, start, lane, is_last=end is ends[0][-1])

    def prepare(self, count: int, lane: Lane) -> None:
        self.sent = None  # for the case that the copy fails
        if self._watched and self.was_written():
            self._watched = []
        if not self._templates or count_storage_uses(self.flat) != self._own_uses + len(self._watched):
            self._allocate(count, lane.device)
        for reader in self._readers:
            is_compute = reader == lane.compute
            if is_compute and id(lane) in self._joined:  # the last forward read all buckets before the first was sent
                continue
            if is_compute:
                self._joined.add(id(lane))
            wait_stream(lane.far, reader)
        self._readers = [reader for reader in self._readers if reader == lane.compute]  # already recorded
        for left in self._leaving.values():
            wait_event(lane.far, left)
        self._leaving = {}
        self.arrived = []

    def receive(self, end: Tensor, start: Tensor, lane: Lane, *, is_last: bool) -> None:
        copy_into(end, start, lane.is_staged)
        self.note_arrival(lane, is_last=is_last)

    def note_arrival(self, lane: Lane, *, is_last: bool) -> None:
        if lane.far is not None and (lane.children or is_last):
            event = record_event(lane.device, lane.far, self._last_arrived if is_last else None)
            self._last_arrived = event if is_last else self._last_arrived
            self.arrived.append(event)
        if is_last:
            self.arrival = Arrival(lane.device, self.arrived[-1:]) if lane.far != lane.compute else None

    def pass_on(self, child: int, above: Stream, left: Any, lane: Lane) -> None:
        """A child has read the values at the event `left`: the far stream does not write them before."""
        self._leaving[child] = left
        if above not in self._leaves_on:
            record_stream(self.flat, above)
            self._leaves_on.append(above)
        if above != lane.compute:
            self.arrival = Arrival(lane.device, [*self.arrived[-1:], *self._leaving.values()])

    def _allocate(self, count: int, device: torch.device) -> None:
        self.flat = torch.empty(count, dtype=self._dtype, device=device)
        self._templates = shaped_views(self.flat, self._shapes)
        self._own_uses = count_storage_uses(self.flat)
        self._watched = []
        self._readers = []
        self._leaving = {}
        self._leaves_on = []

    def note_reader(self, lane: Lane) -> None:
        if lane.compute not in self._readers:
            record_stream(self.flat, lane.compute)
            if self._readers and self.arrival is None:  # then the first reader has filled it on its own stream
                wait_event(lane.compute, self.arrived[-1])
            self._readers.append(lane.compute)

    def new_tensors(self, is_watched: bool) -> list[Tensor]:
        """New tensors over the values. If they are watched, `was_written` reports writes to them.

        Watched values may serve several forwards. Their tensors share version counters, so autograd detects that one
        forward has written what another's graph needs.
        """
        if not is_watched:
            return [template.data for template in self._templates]
        self._watched = self._watched or [template.data for template in self._templates]
        return [tensor.detach() for tensor in self._watched]

    def was_written(self) -> bool:
        """Whether a replica has written in place to a watched tensor."""
        return any(tensor._version for tensor in self._watched)


class StagingBuffer:
    """Producer: the hub. Consumers: the lanes' near streams, which have read the buffer at the events `leaving`."""

    def __init__(self) -> None:
        self._byte_count = 0
        self._memory: Tensor | None = None
        self.leaving: list[Any] = []

    def reserve(self, byte_count: int) -> None:
        """Call this for all buckets before the first is packed."""
        self._byte_count = max(self._byte_count, byte_count)

    def memory(self, byte_count: int, device: torch.device) -> Tensor:
        if self._memory is None:
            self._memory = torch.empty(self._byte_count, dtype=torch.uint8, device=device)
        return self._memory[:byte_count]

    def wait_until_free(self, hub: Stream) -> None:
        for event in self.leaving:
            if event is not None:
                event.wait(hub)


class Bucket:
    """Tensors of one dtype that are sent together. `indices` are those of the tensors in the tree."""

    def __init__(
        self, indices: Sequence[int], sources: Sequence[Tensor], staging: StagingBuffer, joined: set[int]
    ) -> None:
        self.indices, self._joined = list(indices), joined
        self.shapes = [shape_of(source) for source in sources]
        self._byte_count = flat_count(self.shapes, sources[0].dtype) * sources[0].element_size()
        self.is_flat = len(sources) == 1 and sources[0].stride() == self.shapes[0][1]  # sent from the base's memory
        if not self.is_flat:
            staging.reserve(self._byte_count)
        self._staging = staging
        self._packed: tuple[Tensor, list[Tensor]] | None = None
        self._copies: list[FlatCopy] = []
        self.departure: Arrival | None = None
        # Each forward records these two events again, because graphs wait for them.
        self._packed_at: Any = None
        self._left_together: Any = None

    def send(
        self, sources: list[Tensor], lanes: Sequence[Lane], order: Sequence[int], signature: Signature | None
    ) -> list[FlatCopy]:
        """Send the sources to lanes 1, 2, ...; return their copies there.

        `order` holds these lanes' numbers, each behind its parent's. A copy with this signature is not sent again.
        """
        while len(self._copies) < len(lanes) - 1:
            self._copies.append(FlatCopy(self.shapes, sources[0].dtype, self._joined))
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

    def copy_on(self, number: int) -> FlatCopy:
        return self._copies[number - 1]

    def addresses(self) -> list[int]:
        return [copy.flat.data_ptr() for copy in self._copies]

    def _fill(self, outdated: Sequence[int], sources: list[Tensor], lanes: Sequence[Lane]) -> None:
        """Fill the copies on these lanes, each behind its parent. On route "nccl" one send serves all devices."""
        base = lanes[0]
        together = [number for number in outdated if lanes[number].route is Route.NCCL]
        first_hops = [number for number in outdated if lanes[number].parent == 0 and number not in together]
        if first_hops or together:
            packed = self._pack(sources, base)
            packed_at = self._packed_at = record_event(base.device, base.near, self._packed_at)
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
        if not self.is_flat:
            self._staging.leaving = left_at
        self.departure = None
        if base.near != base.compute:
            self.departure = Arrival(base.device, left_at if self.is_flat else [packed_at])
            for reader in readers:  # the staging buffer may be freed with its set while these streams read it
                record_stream(packed, reader)
        elif base.near is not None and not self.is_flat:
            record_stream(packed, base.near)  # the buffer was allocated on the stream that was the caller's then

    def _send_to(self, number: int, source: Tensor, awaited: Sequence[Any], lanes: Sequence[Lane]) -> Any:
        """Return the event after which `source` has been read."""
        lane, copy = lanes[number], self._copies[number - 1]
        above = lanes[lane.parent].device
        with use_stream(above, lane.above), use_stream(lane.device, lane.far):
            copy.fill(source, awaited, lane)
        left = copy.left[lane.parent] = record_event(above, lane.above, copy.left.get(lane.parent))
        return left

    def _send_together(self, numbers: Sequence[int], packed: Tensor, packed_at: Any, lanes: Sequence[Lane]) -> Any:
        """Like `_send_to`, by NCCL."""
        base, up = lanes[0], lanes[1].near
        if up != base.near:
            wait_event(up, packed_at)
        receivers = [(self._copies[number - 1], lanes[number]) for number in numbers]
        send_to_all(packed, up, receivers)
        self._left_together = record_event(base.device, up, self._left_together)
        return self._left_together

    def _pack(self, sources: list[Tensor], base: Lane) -> Tensor:
        if self.is_flat:
            return sources[0].detach().as_strided((sources[0].numel(),), (1,))
        with use_stream(base.device, base.near):
            if self._packed is None:
                flat = self._staging.memory(self._byte_count, base.device).view(sources[0].dtype)
                self._packed = flat, shaped_views(flat, self.shapes)
            self._staging.wait_until_free(base.near)
            flat, views = self._packed
            torch._foreach_copy_(views, sources)
        return flat
