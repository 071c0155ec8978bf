"""Route "nccl": NCCL's broadcast and reduce between the devices of this process, on the side streams.

One call sends a bucket to all lanes, and one call adds the gradients of all lanes::

    forward     hub: pack ──> near 1, far 1, far 2, far 3: broadcast        near 1 is lane 0's end
    backward    hub, far 1, far 2, far 3: reduce into lane 0's flat

NCCL chooses the links and the order of additions. So the order of a sum is not the documented one of other routes.

torch makes a communicator for each list of devices, and keeps it. A batch for fewer lanes than devices goes by a star,
because a short last batch is not worth another one. The calls are made one at a time: two calls from two threads could
reach the devices in different orders, and then wait for each other.
"""

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.lanes import Lane, Stream, use_stream
from dpbench.parallel.policy import Policy, Route

_one_call = threading.Lock()


def check_route(policy: Policy, devices: Sequence[torch.device]) -> None:
    """Raise ValueError if the policy's route is one that the devices cannot take."""
    if policy.route is not Route.NCCL:
        return
    reason = why_unsupported(devices, policy.host_staged)
    if reason is not None:
        raise ValueError(
            f"Policy.route is 'nccl', but {reason}; CUDA devices, each in one lane, are allowed, without host_staged"
        )


def why_unsupported(devices: Sequence[torch.device], is_staged: bool) -> str | None:
    """Why NCCL cannot serve lanes on these devices, or None."""
    if devices[0].type != "cuda":
        return f"the lanes are on {devices[0].type!r}"
    if len(set(devices)) < len(devices):
        repeated = next(device for device in devices if devices.count(device) > 1)
        return f"{repeated} has several lanes"
    if not hasattr(torch._C, "_nccl_broadcast"):
        return "this torch has no NCCL"
    return "Policy.host_staged is True" if is_staged else None


def broadcast_by_nccl(flats: Sequence[Tensor], streams: Sequence[Stream]) -> None:
    """Copy the first flat to the others, each on the stream of its device."""
    parts = [flat.view(torch.uint8) for flat in flats]  # as bytes, because NCCL has not all of torch's types
    with _one_call:
        torch.cuda.nccl.broadcast(parts, streams=streams)


def send_to_all(packed: Tensor, up: Stream, receivers: Sequence[tuple[Any, Lane]]) -> None:
    """Copy a packed bucket to all receivers, each a `FlatCopy` and its lane; lane 0's end is on the stream `up`."""
    for copy, lane in receivers:
        with use_stream(lane.device, lane.far):
            copy.prepare(len(packed), lane)
    broadcast_by_nccl([packed, *[copy.flat for copy, _ in receivers]], [up, *[lane.far for _, lane in receivers]])
    for copy, lane in receivers:
        copy.note_arrival(lane, is_last=True)


def sum_by_nccl(flats: Sequence[Tensor], streams: Sequence[Stream]) -> None:
    """Add all flats into the first one, each on the stream of its device."""
    parts = [torch.view_as_real(flat) if flat.is_complex() else flat for flat in flats]
    with _one_call:
        torch.cuda.nccl.reduce(parts, parts[0], streams=streams)
