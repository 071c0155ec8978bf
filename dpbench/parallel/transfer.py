"""Copies between devices: direct, through the host if the direct link corrupts bytes, or by NCCL.

On some machines peer-to-peer copies silently deliver wrong bytes (NVIDIA/open-gpu-kernel-modules#1257; pytorch #13045,
an IOMMU in between). So each link is tested once per process with a known pattern, before the first parameter goes over
it. On route "nccl" one call sends a bucket, and one call adds the gradients::

    forward     hub: pack ──> near 1, far 1, far 2, far 3: broadcast        near 1 is lane 0's end
    backward    hub, far 1, far 2, far 3: reduce into lane 0's flat

Calls are made one at a time: from two threads they could reach the devices in different orders, and wait for each
other.
"""

import threading
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from dpbench.parallel.devices import CPU
from dpbench.parallel.lanes import Lane, Stream, current_stream, fork, record_stream, use_stream, wait_stream
from dpbench.parallel.policy import Policy, Route

PROBE_ELEMENTS = 1 << 20
MOST_PEERS = 8
"""The peers that a CUDA device can have (CUDA C++ Programming Guide, Peer-to-Peer)."""
_NO_PEERS_LEFT = "peer mapping resources exhausted"
"""The text of cudaErrorTooManyPeers."""
_SPREAD = 0x1E3779B97F4A7C15
"""Factor of Knuth's multiplicative hash."""


def copy_into(destination: Tensor, source: Tensor, is_staged: bool = False) -> None:
    """``destination.copy_(source)``, on the current streams of both devices."""
    if _goes_directly(source.device, destination.device, is_staged):
        destination.copy_(source, non_blocking=destination.device != CPU)
    else:
        destination.copy_(source.to(CPU), non_blocking=False)


def copy_to(tensor: Tensor, device: torch.device, is_staged: bool = False) -> Tensor:
    """``tensor.to(device, copy=True)``, on the current streams of both devices; differentiable.

    A copy to the CPU blocks the host, since nothing else on the host would wait for its end.
    """
    if _goes_directly(tensor.device, device, is_staged):
        return tensor.to(device, non_blocking=device != CPU, copy=True)
    return tensor.to(CPU).to(device)


def send_chunks(chunks: Sequence[Tensor], lanes: Sequence[Lane]) -> list[Tensor]:
    """Return each chunk of a tensor on its lane's device, copied on side streams; differentiable.

    Producer: the current stream of the tensor's device. Consumer: the lane's compute stream, which waits.
    `record_stream` keeps the source until the copy is over, and the copy until the lane has used it.

    A copy from the host overlaps with an earlier step only if the tensor is pinned. A copy to the base's device also
    waits for the compute stream: the optimizer may read a gradient there that the engine cloned on the hub.
    """
    base, source = lanes[0].device, chunks[0].device
    used = lanes[: len(chunks)]
    moves = [source != lane.device or (lane.is_remote and lane.device == base) for lane in used]
    if source != CPU and chunks[0].nbytes <= lanes[0].small_bytes:
        return [
            copy_to(chunk, lane.device, lane.is_staged) if is_moved else chunk
            for chunk, lane, is_moved in zip(chunks, used, moves, strict=True)
        ]
    if source == base and any(moves):
        fork(current_stream(base), [lane.near for lane, is_moved in zip(used, moves, strict=True) if is_moved])
    return [
        _send(chunk, lane, base) if is_moved else chunk
        for chunk, lane, is_moved in zip(chunks, used, moves, strict=True)
    ]


def _send(tensor: Tensor, lane: Lane, base: torch.device) -> Tensor:
    if tensor.device == CPU:
        with use_stream(lane.device, lane.inbound):
            moved = copy_to(tensor, lane.device)
        wait_stream(lane.compute, lane.inbound)
        record_stream(moved, lane.compute)
        return moved
    near = lane.near if tensor.device == base else current_stream(tensor.device)
    if not lane.is_remote:
        wait_stream(lane.far, lane.compute)
    with use_stream(tensor.device, near), use_stream(lane.device, lane.far):
        moved = copy_to(tensor, lane.device, lane.is_staged)
    record_stream(tensor, near)
    wait_stream(lane.compute, lane.far)
    record_stream(moved, lane.compute)
    return moved


def are_sound(one: torch.device, other: torch.device) -> bool:
    """Whether the link passes its test in both directions; warns if it corrupts, or if a device has no peer left."""
    return all([is_sound(one, other), is_sound(other, one)])


def _goes_directly(source: torch.device, destination: torch.device, is_staged: bool) -> bool:
    if is_staged and source != destination and CPU not in (source, destination):
        return False
    return is_sound(source, destination)


def is_sound(source: torch.device, destination: torch.device) -> bool:
    """Only peers are tested: others copy through the host."""
    if source == destination or "cpu" in (source.type, destination.type):
        return True
    return _peers_are_sound(source, destination)


@cache
def are_peers(source: torch.device, destination: torch.device) -> bool:
    """Whether `source` reaches the memory of `destination`."""
    are_peers = getattr(torch.get_device_module(source), "can_device_access_peer", lambda *_: False)
    return source == destination or bool(are_peers(source, destination))


@cache
def _peers_are_sound(source: torch.device, destination: torch.device) -> bool:
    if not are_peers(source, destination):
        return True
    # The first copy over a link may be that of a forward. Its dispatch modes need not see this test, and its side
    # streams need not keep memory for it.
    unseen = _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()
    streams = [use_stream(device, _main_stream(device)) for device in (source, destination)]
    with torch.inference_mode(False), torch.no_grad(), unseen, streams[0], streams[1]:
        sent = torch.arange(PROBE_ELEMENTS, device=CPU) * _SPREAD
        try:
            arrived = _direct_copy(sent.to(source), destination).to(CPU)
        except RuntimeError as error:
            if _NO_PEERS_LEFT not in str(error):
                raise
            _warn_of_peer_limit()
            return False
    if torch.equal(sent, arrived):
        return True
    warnings.warn(
        f"copies from {source} to {destination} arrive corrupted; they go through the host instead, which is slower. "
        "The peer-to-peer path of this machine is broken: see NVIDIA/open-gpu-kernel-modules#1257, or switch the "
        "IOMMU off",
        stacklevel=2,
    )
    return False


@cache  # so it warns once in a process: with many devices, many pairs have no peer left
def _warn_of_peer_limit() -> None:
    warnings.warn(
        f"CUDA lets a device have {MOST_PEERS} peers at most, so some pairs of devices cannot copy directly; their "
        "copies go through the host instead, which is slower",
        RuntimeWarning,
        stacklevel=4,
    )


def _main_stream(device: torch.device) -> Stream:
    module = torch.get_device_module(device)
    return getattr(module, "default_stream", module.current_stream)(device)


def _direct_copy(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device, non_blocking=True)


_one_call = threading.Lock()


def check_route(policy: Policy, devices: Sequence[torch.device]) -> None:
    if policy.route is not Route.NCCL:
        return
    reason = why_unsupported(devices, policy.host_staged)
    if reason is not None:
        raise ValueError(
            f"Policy.route is 'nccl', but {reason}; CUDA devices, each in one lane, are allowed, without host_staged"
        )


def why_unsupported(devices: Sequence[torch.device], is_staged: bool) -> str | None:
    """None if NCCL can serve lanes on these devices."""
    if devices[0].type != "cuda":
        return f"the lanes are on {devices[0].type!r}"
    if len(set(devices)) < len(devices):
        repeated = next(device for device in devices if devices.count(device) > 1)
        return f"{repeated} has several lanes"
    if not hasattr(torch._C, "_nccl_broadcast"):
        return "this torch has no NCCL"
    return "Policy.host_staged is True" if is_staged else None


def broadcast_by_nccl(flats: Sequence[Tensor], streams: Sequence[Stream]) -> None:
    """Copy the first flat to the others."""
    parts = [flat.view(torch.uint8) for flat in flats]  # as bytes, because NCCL has not all of torch's types
    with _one_call:
        torch.cuda.nccl.broadcast(parts, streams=streams)


def send_to_all(packed: Tensor, up: Stream, receivers: Sequence[tuple[Any, Lane]]) -> None:
    """The receivers are pairs of `FlatCopy` and lane. Lane 0's end is on `up`."""
    for copy, lane in receivers:
        with use_stream(lane.device, lane.far):
            copy.prepare(len(packed), lane)
    broadcast_by_nccl([packed, *[copy.flat for copy, _ in receivers]], [up, *[lane.far for _, lane in receivers]])
    for copy, lane in receivers:
        copy.note_arrival(lane, is_last=True)


def sum_by_nccl(flats: Sequence[Tensor], streams: Sequence[Stream]) -> None:
    """Add all flats into the first one."""
    parts = [torch.view_as_real(flat) if flat.is_complex() else flat for flat in flats]
    with _one_call:
        torch.cuda.nccl.reduce(parts, parts[0], streams=streams)
