"""Lanes, and functions on streams of any device type.

The module of an accelerator's type (``torch.get_device_module``) must offer ``Stream``, ``Event``, ``current_stream``
and ``stream``. As in ``torch.cuda``, ``stream`` also makes the stream's device current. After an interrupt
``set_stream``, ``set_device`` and ``synchronize`` are called too. On the CPU an operation is over when its call
returns: the streams are None, and these functions do nothing.

Each lane has two side streams, so that transfers of different lanes run at the same time, beside the compute::

    base's device    compute 0    near 1  near 2  near 3      near: the lane's end of a transfer at the base
                                    ║       ║       ║
    lanes' devices                far 1   far 2   far 3       far: the lane's end at its own device
                                compute 1  2       3          compute: the caller's current stream, where replicas run
                                inbound 1  2       3          inbound: chunks of the batch from the host

The inbound stream carries nothing else, so that the next batch arrives while the last step still runs. The near stream
of lane 0 is the *hub*. The stream *above* is the end of a lane's link at the parent's device (`routes.py`)::

    chain       hub, near 1         far 1, above 2       far 2, above 3       far 3
    lane        0 ────────────────> 1 ─────────────────> 2 ─────────────────> 3
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.policy import Route
from dpbench.parallel.routes import Links, children_of, choose, has_pieces, parents_of

Stream = Any
"""A ``Stream`` of the device type's module; None on the CPU."""
_NOTHING = nullcontext()


def current_stream(device: torch.device) -> Stream:
    return None if device.type == "cpu" else torch.get_device_module(device).current_stream(device.index)


def current_handle(device: torch.device) -> int:
    """The number of the device's current stream, in a tenth of the time of `current_stream`; 0 on the CPU."""
    return _handle_lookup(device.type)(device.index)


@cache
def _handle_lookup(kind: str) -> Callable[[int], int]:
    if kind == "cpu":
        return lambda _: 0
    lookup = getattr(torch._C, f"_{kind}_getCurrentRawStream", None)  # CUDA, ROCm and XPU have it
    return lookup or (lambda index: current_stream(torch.device(kind, index)).stream_id)


def is_link(base: torch.device, device: torch.device) -> bool:
    """Tests let it return True for one device, so that its lanes take the paths of several devices."""
    return base != device


def heads_of(devices: Sequence[torch.device]) -> tuple[int, ...]:
    """For each lane the first one on its device."""
    heads: list[int] = []
    for lane, device in enumerate(devices):
        heads.append(next((head for head in heads if not is_link(devices[head], device)), lane))
    return tuple(heads)


def wait_for_all(devices: Sequence[torch.device]) -> None:
    """Block the host until the devices' current streams are done."""
    for device in dict.fromkeys(devices):
        if (stream := current_stream(device)) is not None:
            stream.synchronize()


class _OnStream:
    """``torch.cuda.StreamContext`` with 3 Python calls in place of about 30."""

    __slots__ = ("_here", "_stream", "_there")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        stream, current, device = self._stream, torch._C._cuda_getCurrentStream, torch._C._cuda_getDevice()
        self._here = current(device)
        self._there = current(stream.device_index) if stream.device_index != device else self._here
        torch._C._cuda_setStream(stream.stream_id, stream.device_index, stream.device_type)

    def __exit__(self, *_: object) -> None:
        if self._there is not self._here:
            torch._C._cuda_setStream(*self._there)
        torch._C._cuda_setStream(*self._here)  # this makes its device current too


def use_stream(device: torch.device, stream: Stream) -> AbstractContextManager[Any]:
    if type(stream) is torch.cuda.Stream:
        return _OnStream(stream)
    return _NOTHING if stream is None else torch.get_device_module(device).stream(stream)


class _Events(threading.local):
    """One event per device. It may be recorded again at once: a wait is for the record before it."""

    def __init__(self) -> None:
        self.of: dict[int, Any] = defaultdict(torch._C._CudaEventBase)


_events = _Events()


def wait_stream(waiting: Stream, awaited: Stream) -> None:
    if waiting is not None and awaited is not None:
        fork(awaited, [waiting])


def fork(awaited: Stream, streams: Iterable[Stream]) -> None:
    """Make all later work on the streams wait for all present work on `awaited`, with one event."""
    waiting = [] if awaited is None else [stream for stream in streams if stream is not None and stream != awaited]
    if not waiting:
        return
    is_cuda = type(awaited) is torch.cuda.Stream
    event = _events.of[awaited.device_index] if is_cuda else torch.get_device_module(awaited.device).Event()
    event.record(awaited)
    for stream in waiting:
        event.wait(stream)


def record_stream(tensor: Tensor, stream: Stream) -> None:
    """Keep the allocator from reusing the tensor's memory before `stream` is done with it."""
    if stream is None:
        return
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # vmap has no rule for record_stream
        tensor = torch._C._functorch.get_unwrapped(tensor)
    is_sparse = tensor.layout is torch.sparse_coo  # CUDA has no record_stream for sparse tensors
    for part in (tensor._indices(), tensor._values()) if is_sparse else (tensor,):
        # With lazy conjugation or negation the operator would get a copy.
        conjugated = part.conj() if part.is_conj() else part
        (conjugated._neg_view() if conjugated.is_neg() else conjugated).record_stream(stream)


def wait_event(waiting: Stream, event: Any) -> None:
    if event is not None:
        event.wait(waiting)


def record_event(device: torch.device, stream: Stream, again: Any = None) -> Any:
    """An event behind all present work on the stream: `again`, or a new one; None on the CPU."""
    if stream is None:
        return None
    event = again
    if event is None:
        is_cuda = type(stream) is torch.cuda.Stream  # its class in Python adds calls, and a check of the build
        # A graph may wait for an external event. Outside of graphs it is as any other.
        event = torch._C._CudaEventBase(external=True) if is_cuda else torch.get_device_module(device).Event()
    event.record(stream)
    return event


@dataclass(frozen=True, slots=True)
class Lane:
    device: torch.device
    compute: Stream
    near: Stream
    far: Stream
    inbound: Stream
    above: Stream
    """It is `near` if the parent is lane 0, and `far` for a lane on the device of any other parent."""
    parent: int = 0
    children: tuple[int, ...] = ()
    is_linked: bool = False
    """Whether a link leads to its parent."""
    route: Route = Route.STAR
    is_staged: bool = False
    """`Policy.host_staged`."""
    is_remote: bool = False
    """False on the base's device, to which no link leads."""
    has_pieces: bool = True
    small_bytes: int = 0
    """Chunks and outputs up to this size go on the compute streams."""


class _Here(threading.local):
    device = 0
    lanes: Sequence[Lane] = ()


class SideStreams:
    def __init__(
        self,
        devices: Sequence[torch.device],
        is_staged: bool = False,
        route: Route = Route.STAR,
        links: Links | None = None,
        small_bytes: int = 0,
        *,
        has_whole_buckets: bool = False,
    ) -> None:
        self._devices = list(devices)
        self._small_bytes, self._has_whole_buckets = small_bytes, has_whole_buckets
        self._is_staged = is_staged
        self._is_remote = [i > 0 and is_link(devices[0], device) for i, device in enumerate(devices)]
        self._links = links or Links(heads_of(devices), frozenset())
        # Under "auto" the first few lanes take a chain only if all of them do, because only its links were tested.
        self._route = Route.STAR if route is Route.AUTO and choose(self._links) is Route.STAR else route
        # Made at the first use: lanes on one device never overlap, and need none.
        self._streams: list[tuple[Stream, Stream, Stream]] = []
        # By device too: with fewer chunks a lane may have another parent.
        self._aboves: dict[tuple[int, torch.device], Stream] = {}
        self._lock = threading.Lock()
        # Valid while the caller's streams are the same. Asking for these costs less than making lanes.
        self._last: dict[tuple[bool, int], tuple[list[int], list[Lane]]] = {}
        self._is_on_cpu = devices[0].type == "cpu"
        self.here = _Here()

    @property
    def has_links(self) -> bool:
        return any(self._is_remote)

    def lanes(self, count: int, is_overlapped: bool) -> list[Lane]:
        """The first `count` lanes; without side streams unless `is_overlapped`."""
        handles = [] if self._is_on_cpu else [current_handle(device) for device in self._devices[:count]]
        last = self._last.get((is_overlapped, count))
        if last is None or last[0] != handles:
            last = self._last[is_overlapped, count] = handles, self._new_lanes(count, is_overlapped)
        if not self._is_on_cpu and not self.here.lanes:
            self.here.device = torch.get_device_module(self._devices[0]).current_device()
        self.here.lanes = last[1]
        return last[1]

    def restore(self) -> None:
        """Undo what an interrupt has left of `use_stream` in this thread, and wait for all devices."""
        if self._is_on_cpu or not self.here.lanes:
            return
        module = torch.get_device_module(self._devices[0])
        for lane in self.here.lanes:
            module.set_stream(lane.compute)
        module.set_device(self.here.device)
        for device in dict.fromkeys(self._devices):
            module.synchronize(device)

    def _new_lanes(self, count: int, is_overlapped: bool) -> list[Lane]:
        devices = self._devices[:count]
        links = self._links.first(count)
        route = choose(links) if self._route is Route.AUTO else self._route
        if route is Route.NCCL and count < len(self._devices):
            route = Route.STAR  # NCCL would first make a communicator for these devices alone
        parents, is_cut = parents_of(route, links), not self._has_whole_buckets and has_pieces(route, links)
        is_linked = [lane > 0 and is_link(devices[parents[lane]], device) for lane, device in enumerate(devices)]
        computes = [current_stream(device) for device in devices]
        if is_overlapped and not self._is_on_cpu:
            with self._lock:  # threads that begin together get the same streams, and so settle on those they sent on
                self._streams = self._streams or [_new_streams(self._devices[0], device) for device in self._devices]
                sides = [(*self._streams[lane], self._above(lane, parents[lane])) for lane in range(count)]
        else:
            sides = [(computes[0], computes[lane], computes[lane], computes[parents[lane]]) for lane in range(count)]
        return [
            Lane(
                device,
                computes[lane],
                *sides[lane],
                parent=parents[lane],
                children=children_of(lane, parents),
                is_linked=is_linked[lane],
                route=route if is_linked[lane] else Route.STAR,
                is_staged=self._is_staged,
                is_remote=self._is_remote[lane],
                has_pieces=is_cut,
                small_bytes=self._small_bytes,
            )
            for lane, device in enumerate(devices)
        ]

    def _above(self, lane: int, parent: int) -> Stream:
        near, far, _ = self._streams[lane]
        device = self._devices[parent]
        if parent == 0 or device == self._devices[lane]:
            return near if parent == 0 else far
        if (lane, device) not in self._aboves:
            self._aboves[lane, device] = torch.get_device_module(device).Stream(device)
        return self._aboves[lane, device]


def _new_streams(base: torch.device, device: torch.device) -> tuple[Stream, Stream, Stream]:
    module = torch.get_device_module(device)
    near = module.Stream(base)
    return near, near if device == base else module.Stream(device), module.Stream(device)
