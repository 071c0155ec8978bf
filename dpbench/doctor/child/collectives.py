"""Times of NCCL's collectives among all devices in one process, for a machine file."""

from typing import Any

import torch

from dpbench.doctor.child.timing import Bench, repeated
from dpbench.doctor.measured import Collectives

_LARGE_BYTES = 64 << 20
_SMALL_BYTES = 256
_LARGE_CALLS, _SMALL_CALLS = 4, 20


def collectives(bench: Bench) -> Collectives:
    """Return the times of NCCL's collectives. Raise RuntimeError if this torch has no NCCL for these devices."""
    large, small = (
        [torch.ones(size // 4, device=device) for device in bench.devices] for size in (_LARGE_BYTES, _SMALL_BYTES)
    )
    nccl: Any = torch.cuda.nccl
    if not nccl.is_available(large):
        raise RuntimeError("this torch has no NCCL")
    return Collectives(
        large_bytes=_LARGE_BYTES,
        all_reduce_s=repeated(bench.to_the_end(lambda: nccl.all_reduce(large), _LARGE_CALLS)),
        broadcast_s=repeated(bench.to_the_end(lambda: nccl.broadcast(large), _LARGE_CALLS)),
        small_s=repeated(bench.to_the_end(lambda: nccl.all_reduce(small), _SMALL_CALLS)),
        host_s=repeated(bench.on_host(lambda: nccl.all_reduce(small), _SMALL_CALLS)),
    )
