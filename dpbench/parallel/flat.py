"""Flat memory that persists between forwards: one bucket's values on one lane, and the stage they are packed in.

What a replica gets is ``template.data``: it shares the flat's memory and has a version counter of its own, so
that an in-place write to one weight does not invalidate another. Autograd cannot see a flat being written
under such a tensor, therefore it is written again only while nothing but its templates uses its storage;
otherwise an older graph, a hook or the user still reads it, and the bucket moves to new memory.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.arrival import Arrival
from dpbench.parallel.lanes import Lane, Stream, record_event, record_stream, wait_stream
from dpbench.parallel.transfer import copy_into

Shape = tuple[torch.Size, tuple[int, ...]]
"""Sizes and strides, without gaps."""


class FlatCopy:
    """Producer: the lane's far stream. Consumers: the compute streams of the forwards that got its tensors."""

    def __init__(self, shapes: Sequence[Shape], dtype: torch.dtype) -> None:
        self._shapes = shapes
        self._dtype = dtype
        self._templates: list[Tensor] = []
        self._watched: list[Tensor] = []  # over the templates' memory, if writes to what was handed out are to show
        self._readers: list[Stream] = []
        self.arrival: Arrival | None = None
        self.sent: Any = None  # what the values are of, for `unchanged.py`
        self.sent_from: list[Tensor] = []  # keeps what that names from being other tensors' memory

    def fill(self, flat: Tensor, lane: Lane) -> None:
        """Copies a flat of the same size here, on the current streams of the source and of the lane."""
        self.sent = None  # should the copy fail
        if self._watched and self.was_written():
            self._watched = []
        if not self._templates or count_storage_uses(self._flat) != self._own_uses + len(self._watched):
            self._allocate(flat.numel(), lane.device)
        for reader in self._readers:
            wait_stream(lane.far, reader)
        self._readers = [reader for reader in self._readers if reader == lane.compute]  # whom the memory is kept for
        copy_into(self._flat, flat, lane.is_staged)
        is_beside = lane.far != lane.compute
        self.arrival = Arrival(lane.device, [record_event(lane.device, lane.far)]) if is_beside else None

    def _allocate(self, count: int, device: torch.device) -> None:
        self._flat = torch.empty(count, dtype=self._dtype, device=device)
        self._templates = shaped_views(self._flat, self._shapes)
        self._own_uses = count_storage_uses(self._flat)
        self._watched = []
        self._readers = []

    def new_tensors(self, lane: Lane, is_watched: bool) -> list[Tensor]:
        """New tensors over the values, to be read on the lane's compute stream. If watched, `was_written` can tell of
        them.

        Watched values may serve several forwards: their tensors share version counters then, so that autograd finds
        what one of them wrote under the graph of another. All else that is done to a tensor stays with it.
        """
        if lane.compute is not None and lane.compute not in self._readers:
            record_stream(self._flat, lane.compute)
            if self._readers and self.arrival is None:  # then the first to read it had filled it on its own stream
                wait_stream(lane.compute, self._readers[0])
            self._readers.append(lane.compute)
        if not is_watched:
            return [template.data for template in self._templates]
        self._watched = self._watched or [template.data for template in self._templates]
        return [tensor.detach() for tensor in self._watched]

    def was_written(self) -> bool:
        """Whether a replica wrote in place to what was handed out, watched."""
        return any(tensor._version for tensor in self._watched)


class StagingBuffer:
    """Where a bucket is packed before it travels; several buckets share one in turn.

    Producer: the hub. Consumers: the lanes' near streams, up to their events.
    """

    def __init__(self) -> None:
        self._byte_count = 0
        self._memory: Tensor | None = None
        self.leaving: list[Any] = []

    def reserve(self, byte_count: int) -> None:
        """To be called for all buckets before the first is packed."""
        self._byte_count = max(self._byte_count, byte_count)

    def memory(self, byte_count: int, device: torch.device) -> Tensor:
        if self._memory is None:
            self._memory = torch.empty(self._byte_count, dtype=torch.uint8, device=device)
        return self._memory[:byte_count]

    def wait_until_free(self, hub: Stream) -> None:
        for event in self.leaving:
            if event is not None:
                hub.wait_event(event)


def shape_of(tensor: Tensor) -> Shape:
    """The tensor's own strides where they have no gaps, as channels_last; else those of contiguous memory."""
    count = 1
    for stride, size in sorted((st, si) for st, si in zip(tensor.stride(), tensor.shape, strict=True) if si != 1):
        if stride != count:
            return tensor.shape, torch.empty(tensor.shape, device="meta").stride()
        count *= size
    return tensor.shape, tensor.stride()


def shaped_views(flat: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
    """Consecutive parts of `flat`, in the given shapes."""
    parts = flat.split([size.numel() for size, _ in shapes])
    return [part.as_strided(*shape) for part, shape in zip(parts, shapes, strict=True)]


def count_storage_uses(tensor: Tensor) -> int:
    """How many use the storage: tensors, in Python and in graphs, and Python objects that are the storage itself."""
    return _counter_for(tensor.device.type)(tensor)


@cache
def _counter_for(device_type: str) -> Callable[[Tensor], int]:
    """A backend that hides its storage may tell itself."""
    return getattr(torch.get_device_module(device_type), "storage_use_count", _storage_use_count)


def _storage_use_count(tensor: Tensor) -> int:
    storage = tensor.untyped_storage()  # the same object as anyone's in Python who keeps it
    return torch._C._storage_Use_Count(storage._cdata) + sys.getrefcount(storage)
