"""A lane: one replica's device and the streams its bytes move on; and the verbs of streams for every device.

The module of an accelerator's type (``torch.get_device_module``) must offer ``Stream``, ``Event``,
``current_stream``, and ``stream``, which makes the stream's device the current one too, as ``torch.cuda`` does.
On the CPU work is done when its call returns: its streams are None and the verbs do nothing with them.

Each lane has two side streams, so that transfers of different lanes run at the same time, beside the compute::

    base's device    compute 0    near 1  near 2  near 3      near: the lane's end of a transfer at the base
                                    ║       ║       ║
    lanes' devices                far 1   far 2   far 3       far: the lane's end at its own device
                                compute 1  2       3          compute: the caller's current stream, where replicas run

Lane 0 is the base's; its near stream is the *hub*, on which buckets are packed and gradients added up.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Stream = Any
"""A stream of the device type's own module; None on the CPU."""
_NOTHING = nullcontext()


def current_stream(device: torch.device) -> Stream:
    # By its index: for torch.cuda that takes half the time, and every read of a weight under way comes here.
    return None if device.type == "cpu" else torch.get_device_module(device).current_stream(device.index)


def use_stream(device: torch.device, stream: Stream) -> AbstractContextManager[Any]:
    return _NOTHING if stream is None else torch.get_device_module(device).stream(stream)


def wait_stream(waiting: Stream, awaited: Stream) -> None:
    """What `waiting` is asked to do from now on comes after what `awaited` has been asked to do until now."""
    if waiting is not None and awaited is not None and waiting != awaited:
        waiting.wait_stream(awaited)


def record_stream(tensor: Tensor, stream: Stream) -> None:
    """Keeps the tensor's memory from being handed out again before `stream` is done with it."""
    if stream is None:
        return
    is_sparse = tensor.layout is torch.sparse_coo  # for which CUDA has no record_stream of its own
    for part in (tensor._indices(), tensor._values()) if is_sparse else (tensor,):
        part.record_stream(stream)


def record_event(device: torch.device, stream: Stream) -> Any:
    """An event at the present end of the stream; None on the CPU."""
    if stream is None:
        return None
    event = torch.get_device_module(device).Event()
    event.record(stream)
    return event


@dataclass(frozen=True, slots=True)
class Lane:
    """One replica's device, and its streams as of one forward."""

    device: torch.device
    compute: Stream
    near: Stream
    far: Stream
    is_staged: bool = False
    """Whether its bytes go through the host by the user's choice."""


class SideStreams:
    """The streams of one wrapper beside its caller's own. They are made when first asked for."""

    def __init__(self, devices: Sequence[torch.device], is_staged: bool = False) -> None:
        self._devices = list(devices)
        self._is_staged = is_staged
        self._streams: list[tuple[Stream, Stream]] = []
        self._lock = threading.Lock()
        self._on_cpu = [Lane(device, None, None, None) for device in devices] if devices[0].type == "cpu" else None

    def lanes(self, count: int, is_overlapped: bool) -> list[Lane]:
        """The first `count` lanes; all on the caller's own streams unless `is_overlapped`."""
        if self._on_cpu is not None:
            return self._on_cpu[:count]
        if is_overlapped:
            with self._lock:  # what one forward sets out on, it settles on too, whichever began first
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
