"""Times of copies between host and devices, and between devices, for a machine file."""

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor

from dpbench.doctor.child.timing import Bench, repeated
from dpbench.doctor.measured import HostCopies, PairCopies, Together

COPY_BYTES = 64 << 20
_SMALL_BYTES = 4
_CALLS, _SMALL_CALLS = 2, 50
_PAIR_S = 0.15  # 56 pairs of 8 devices in half a minute

Copy = tuple[Tensor, Tensor]
"""Destination and source."""


def host_copies(bench: Bench, device: torch.device) -> HostCopies:
    """Return the copies between pinned memory and a device."""
    here, there = _tensor(device), _tensor().pin_memory()
    small = _tensor(device, _SMALL_BYTES), _tensor(size=_SMALL_BYTES).pin_memory()
    return HostCopies(
        device=device.index,
        to_device_s=repeated(bench.on_device(device, _copy(here, there), _CALLS)),
        from_device_s=repeated(bench.on_device(device, _copy(there, here), _CALLS)),
        latency_s=repeated(bench.on_device(device, _copy(*small), _SMALL_CALLS)),
    )


def pair_copies(bench: Bench, source: torch.device, destination: torch.device) -> PairCopies:
    """Return the copies from a device to another. torch enqueues them on the source's stream."""
    large = _tensor(destination), _tensor(source)
    small = _tensor(destination, _SMALL_BYTES), _tensor(source, _SMALL_BYTES)
    return PairCopies(
        source=source.index,
        destination=destination.index,
        is_peer=bool(bench.module.can_device_access_peer(source, destination)),
        seconds=repeated(bench.on_device(source, _copy(*large), _CALLS), _PAIR_S),
        latency_s=repeated(bench.on_device(source, _copy(*small), _SMALL_CALLS), _PAIR_S),
    )


def to_all(bench: Bench) -> list[Together]:
    """Return the copies from the host to each pair of devices at once, and to all of several pairs."""
    copies = {device.index: (_tensor(device), _tensor().pin_memory()) for device in bench.devices}
    wanted: list[tuple[int, ...]] = list(combinations(sorted(copies), 2))
    wanted += [tuple(sorted(copies))] if len(copies) > 2 else []
    return [_together(bench, devices, [copies[each] for each in devices]) for devices in wanted]


def from_first(bench: Bench) -> Together:
    """Return the copies from the first device to all others at once, each on a stream of its own."""
    first, *others = bench.devices
    source = _tensor(first)
    streams = [bench.module.Stream(first) for _ in others]
    copies = [(_tensor(device), source) for device in others]
    return _together(bench, tuple(device.index for device in others), copies, streams)


def _together(
    bench: Bench, devices: tuple[int, ...], copies: Sequence[Copy], streams: Sequence[torch.Stream | None] = ()
) -> Together:
    calls = [_copy(*copy, stream) for copy, stream in zip(copies, streams or [None] * len(copies), strict=True)]
    each = [bench.to_the_end(call, _CALLS) for call in calls]
    all_of_them = bench.to_the_end(lambda: [call() for call in calls], _CALLS)
    return Together(
        devices=devices,
        alone_s=repeated(lambda: max(measure() for measure in each), _PAIR_S),
        together_s=repeated(all_of_them, _PAIR_S),
    )


def _tensor(device: torch.device | None = None, size: int | None = None) -> Tensor:
    return torch.ones(COPY_BYTES if size is None else size, dtype=torch.uint8, device=device)


def _copy(destination: Tensor, source: Tensor, stream: torch.Stream | None = None) -> Callable[[], object]:
    if stream is None:
        return lambda: destination.copy_(source, non_blocking=True)
    module = torch.get_device_module(source.device)

    def copy_on_stream() -> None:
        with module.stream(stream):
            destination.copy_(source, non_blocking=True)

    return copy_on_stream
