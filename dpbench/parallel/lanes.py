"""A lane: one replica's device and its streams; functions on streams of any device type.

The module of an accelerator's type (``torch.get_device_module``) must offer ``Stream``, ``Event``,
``current_stream`` and ``stream``. As in ``torch.cuda``, ``stream`` also makes the stream's device current.
On the CPU an operation is over when its call returns: the streams are None, and these functions do nothing.

Each lane has two side streams, so that transfers of different lanes run at the same time, beside the compute::

    base's device    compute 0    near 1  near 2  near 3      near: the lane's end of a transfer at the base
                                    ║       ║       ║
    lanes' devices                far 1   far 2   far 3       far: the lane's end at its own device
                                compute 1  2       3          compute: the caller's current stream, where replicas run

Lane 0 is the base's. Its near stream is the *hub*, on which buckets are packed and gradients are summed.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Stream = Any
"""A ``Stream`` of the device type's module; None on the CPU."""
_NOTHING = nullcontext()


def current_stream(device: torch.device) -> Stream:
    # By index, which takes torch.cuda half the time: every read of a weight that is under way calls this.
    return None if device.type == "cpu" else torch.get_device_module(device).current_stream(device.index)


def use_stream(device: torch.device, stream: Stream) -> AbstractContextManager[Any]:
    return _NOTHING if stream is None else torch.get_device_module(device).stream(stream)


def wait_stream(waiting: Stream, awaited: Stream) -> None:
    """Make all later work on `waiting` wait for all present work on `awaited`."""
    if waiting is not None and awaited is not None and waiting != awaited:
        waiting.wait_stream(awaited)


def record_stream(tensor: Tensor, stream: Stream) -> None:
    """Keep the allocator from reusing the tensor's memory before `stream` is done with it."""
    if stream is None:
        return
    is_sparse = tensor.layout is torch.sparse_coo  # CUDA has no record_stream for sparse tensors
    for part in (tensor._indices(), tensor._values()) if is_sparse else (tensor,):
        part.record_stream(stream)


def record_event(device: torch.device, stream: Stream) -> Any:
    """A new event behind all present work on the stream; None on the CPU."""
    if stream is None:
        return None
    event = torch.get_device_module(device).Event()
    event.record(stream)
    return event


@dataclass(frozen=True, slots=True)
class Lane:
    """One replica's device and its streams in one forward."""

    device: torch.device
    compute: Stream
    near: Stream
    far: Stream
    is_staged: bool = False
    """Whether its bytes go through the host because the user chose `Policy.host_staged`."""


class SideStreams:
    """The side streams of one wrapper. They are made on first use."""

    def __init__(self, devices: Sequence[torch.device], is_staged: bool = False) -> None:
        self._devices = list(devices)
        self._is_staged = is_staged
        self._streams: list[tuple[Stream, Stream]] = []
        self._lock = threading.Lock()
        self._on_cpu = [Lane(device, None, None, None) for device in devices] if devices[0].type == "cpu" else None

    def lanes(self, count: int, is_overlapped: bool) -> list[Lane]:
        """The first `count` lanes; without side streams unless `is_overlapped`."""
        if self._on_cpu is not None:
            return self._on_cpu[:count]
        if is_overlapped:
            with self._lock:  # threads that begin together get the same streams, and so settle on those they sent on
                self._streams = self._streams or [_new_pair(self._devices[0], device) for device in self._devices]
        computes = [current_stream(device) for device in self._devices[:count]]
        pairs = self._streams if is_overlapped else [(computes[0], compute) for compute in computes]
        return [
            Lane(device, compute, near, far, self._is_staged)
            for device, compute, (near, far) in zip(self._devices, computes, pairs, strict=False)
        ]


def _new_pair(base: torch.device, device: torch.device) -> tuple[Stream, Stream]:
    module = torch.get_device_module(device)
    near = module.Stream(base)
    return near, near if device == base else module.Stream(device)
