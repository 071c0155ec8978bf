"""A probe of the links: the seconds that a piece of weights and gradients takes on each route that "auto" may take.

Copies that share a link slow each other down. So the probe starts all copies of a route together, as buckets in a row
keep all its links busy, and measures until the last one has ended. It takes a few milliseconds for each route.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from dpbench.parallel.lanes import record_event, use_stream, wait_for_all
from dpbench.parallel.policy import Route
from dpbench.parallel.routes.plan import Hop, Seconds

PIECE_BYTES = 8 * 1024 * 1024
ROUNDS = 3
_Copies = list[tuple[torch.device, Tensor, Tensor]]
"""Each copy's device, on whose stream it runs, its destination and its source."""


@cache
def measure(
    devices: tuple[torch.device, ...],
    hops: tuple[tuple[Route, tuple[tuple[Hop, ...], ...]], ...],
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """The least seconds of some rounds for each route; nothing on devices that measure no times.

    `hops` are the route's copies down, and those up, with None for the host. Their numbers are indices of `devices`.
    """
    if devices[0].type == "cpu" or not has_times(devices[0]):
        return ()
    with torch.inference_mode(False), torch.no_grad():
        return tuple((route, sum(_least(devices, phase, clock) for phase in phases)) for route, phases in hops)


def has_times(device: torch.device) -> bool:
    """Whether events of the device measure times; simulated devices' do not."""
    module = torch.get_device_module(device)
    first, second = (module.Event(enable_timing=True) for _ in range(2))
    stream = module.current_stream(device)
    first.record(stream)
    second.record(stream)
    second.synchronize()
    try:
        first.elapsed_time(second)
    except NotImplementedError:
        return False
    return True


def _least(devices: Sequence[torch.device], phase: Sequence[Hop], clock: Callable[[], float]) -> float:
    """The least seconds until all copies of a phase have ended; a first round warms up."""
    copies: _Copies = []
    for source, destination in phase:
        ends = [_memory(devices, end) for end in (destination, source)]
        copies.append((devices[destination if source is None else source], ends[0], ends[1]))  # type: ignore[index]
    streams = [torch.get_device_module(device).Stream(device) for device, _, _ in copies]
    seconds = []
    for _ in range(1 + ROUNDS):
        wait_for_all(devices)
        begin = clock()
        events = []
        for stream, (device, into, piece) in zip(streams, copies, strict=True):
            with use_stream(device, stream):
                into.copy_(piece, non_blocking=True)
                events.append(record_event(device, stream))
        for event in events:
            event.synchronize()
        seconds.append(clock() - begin)
    return min(seconds[1:])


def _memory(devices: Sequence[torch.device], end: int | None) -> Tensor:
    """New memory for one end of one copy, because the copies run in no order."""
    if end is None:
        return torch.zeros(PIECE_BYTES, dtype=torch.uint8).pin_memory()
    return torch.empty(PIECE_BYTES, dtype=torch.uint8, device=devices[end])
