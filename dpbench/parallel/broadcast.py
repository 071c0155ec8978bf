"""Hand the base's tensors out to the lanes, and its adjoint: sum the lanes' gradients into the base.

The values lie in flat buffers that persist between forwards, one per bucket and lane::

    base    p0 p1 p2 ...      --foreach copy-->   flat of the first copy   --one message per lane-->   other flats
    lane    view view view    <--.data---------   templates: views of the flat, shaped as p0 p1 p2

What a replica gets is ``template.data``: it shares the flat's memory and has a version counter of its own, so
that an in-place write to one weight does not invalidate another. Autograd cannot see that a flat is written
again under such a tensor, therefore a flat is written only while nothing but its templates uses its storage;
otherwise an older graph, a hook or the user still reads it, and the bucket gets new memory.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Function

from dpbench.parallel.buckets import Item, plan_buckets
from dpbench.parallel.policy import Policy

_STRIDED = torch.strided


class FlatCopy:
    """One bucket's values on one lane."""

    def __init__(self, sources: Sequence[Tensor], device: torch.device) -> None:
        self._sources = [torch.empty_like(source, device="meta") for source in sources]
        self._device = device
        self._allocate()

    def _allocate(self) -> None:
        counts = [source.numel() for source in self._sources]
        self.flat = torch.empty(sum(counts), dtype=self._sources[0].dtype, device=self._device)
        self.templates = [
            _view_like(part, source) for part, source in zip(self.flat.split(counts), self._sources, strict=True)
        ]
        self._own_uses = self._count_uses()

    def _count_uses(self) -> int:
        return torch._C._storage_Use_Count(self.flat.untyped_storage()._cdata)

    def make_writable(self) -> None:
        """Moves to new memory if anything else still uses the present one."""
        if self._count_uses() != self._own_uses:
            self._allocate()

    def hand_out(self) -> list[Tensor]:
        return [template.data for template in self.templates]


class Bucket:
    """Tensors of one dtype that travel together, by their indices in the tree, and their copies on the lanes."""

    def __init__(self, indices: Sequence[int]) -> None:
        self.indices = list(indices)
        self._copies: list[FlatCopy] = []

    def send(self, tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
        """The bucket's tensors as each of the devices sees them."""
        sources = [tensors[i] for i in self.indices]
        while len(self._copies) < len(devices):
            self._copies.append(FlatCopy(sources, devices[len(self._copies)]))
        copies = self._copies[: len(devices)]
        for copy in copies:
            copy.make_writable()
        stage = next((copy for copy in copies if copy.flat.device == sources[0].device), None)
        if stage is None:
            stage = FlatCopy(sources, sources[0].device)
        torch._foreach_copy_(stage.templates, sources)
        for copy in copies:
            if copy is not stage:
                copy.flat.copy_(stage.flat, non_blocking=True)
        return [copy.hand_out() for copy in copies]


class Lone:
    """A tensor that no flat buffer can hold, as a sparse one: a new copy of it every forward."""

    def __init__(self, index: int) -> None:
        self.indices = [index]

    def send(self, tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
        source = tensors[self.indices[0]].detach()
        return [[source.to(device, non_blocking=True, copy=True)] for device in devices]


class Broadcast:
    """Sends a tree's tensors to lanes 1, 2, ... and keeps the memory they arrive in."""

    def __init__(self, tensors: Sequence[Tensor], policy: Policy) -> None:
        items = [
            Item((t.dtype, t.device) if policy.coalesce and _fits_flat(t) else None, t.numel() * t.element_size())
            for t in tensors
        ]
        planned = plan_buckets(items, policy.bucket_bytes, policy.first_bucket_bytes)
        self._parcels: list[Bucket | Lone] = [
            Bucket(indices) if _fits_flat(tensors[indices[0]]) else Lone(indices[0]) for indices in planned
        ]

    def hand_out(self, tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
        """Per lane, the tree's tensors as its replica is to see them.

        The first lane shares the base's memory. In grad mode what requires grad is no leaf: it leads back to
        the base through one autograd node per bucket.
        """
        lanes: list[list[Tensor]] = [list(tensors) for _ in devices]
        if len(devices) > 1:
            with _plain_mode():
                for parcel in self._parcels:
                    for lane, copy in zip(lanes[1:], parcel.send(tensors, devices[1:]), strict=True):
                        for i, value in zip(parcel.indices, copy, strict=True):
                            lane[i] = value
        if torch.is_grad_enabled():
            for parcel in self._parcels:
                _connect(tensors, [i for i in parcel.indices if tensors[i].requires_grad], lanes)
        return lanes


def _connect(tensors: Sequence[Tensor], indices: Sequence[int], lanes: list[list[Tensor]]) -> None:
    """Makes the lanes' copies of these tensors outputs of one autograd node that has the base's as inputs."""
    if not indices:
        return
    copies = [lane[i] for lane in lanes[1:] for i in indices]
    outputs = HandOut.apply(copies, *[tensors[i] for i in indices])
    count = len(indices)
    for number, lane in enumerate(lanes):
        for i, value in zip(indices, outputs[number * count : (number + 1) * count], strict=True):
            lane[i] = value


class HandOut(Function):
    """Identity from the base's tensors to every lane's copies of them; backward sums over the lanes."""

    @staticmethod
    def forward(ctx: Any, copies: list[Tensor], *bases: Tensor) -> tuple[Tensor, ...]:
        # A gradient nobody gave stays None: a parameter that no replica used has none, as with the bare module.
        ctx.set_materialize_grads(False)
        ctx.device = bases[0].device
        ctx.count = len(bases)
        # Detached, the first lane's tensors share the version counter with the base's: a write to one shows in both.
        return (*[base.detach() for base in bases], *copies)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        lanes = [grads[start : start + ctx.count] for start in range(0, len(grads), ctx.count)]
        return (None, *sum_over_lanes(lanes, ctx.device))


def sum_over_lanes(lanes: Sequence[Sequence[Tensor | None]], device: torch.device) -> list[Tensor | None]:
    """Adds up on `device`, tensor by tensor in the order of the lanes; differentiable itself."""
    if all(grad is not None and grad.layout is _STRIDED for lane in lanes for grad in lane):
        return list(_sum_flat(lanes, device))
    columns = [[grad for grad in column if grad is not None] for column in zip(*lanes, strict=True)]
    sums = [_sum_alone(column, device) for column in columns]
    return sums


def _sum_flat(lanes: Sequence[Sequence[Any]], device: torch.device) -> tuple[Tensor, ...]:
    """Sums with one kernel, and one message, per lane."""
    total = _moved(lanes[0], device)
    is_own = False
    for lane in lanes[1:]:
        if is_own:
            torch._foreach_add_(total, _moved(lane, device))
        else:
            total, is_own = torch._foreach_add(total, _moved(lane, device)), True
    return total


def _moved(grads: Sequence[Tensor], device: torch.device) -> tuple[Tensor, ...]:
    if grads[0].device == device:
        return tuple(grads)
    flat = _flatten_dense_tensors(grads).to(device, non_blocking=True)
    return _unflatten_dense_tensors(flat, grads)


def _sum_alone(grads: list[Tensor], device: torch.device) -> Tensor | None:
    if not grads:
        return None
    return functools.reduce(torch.add, [grad.to(device, non_blocking=True) for grad in grads])


def _fits_flat(tensor: Tensor) -> bool:
    """Whether the tensor is an ordinary one of its device: dense, and of no subclass with a mind of its own."""
    ordinary = (torch.nn.Parameter, type(torch.empty(0, device=tensor.device)))
    return tensor.layout is _STRIDED and type(tensor) in ordinary


def _view_like(part: Tensor, source: Tensor) -> Tensor:
    """A view of a flat part with the source's shape, and its strides where they leave no gaps, as channels_last."""
    if torch.ops.aten.is_non_overlapping_and_dense(source):
        return part.as_strided(source.shape, source.stride())
    return part.view(source.shape)


@contextmanager
def _plain_mode() -> Iterator[None]:
    """No autograd, and ordinary tensors even under inference mode: what is kept must serve later training too."""
    with torch.inference_mode(False), torch.no_grad():
        yield
