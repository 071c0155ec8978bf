"""DistributedDataParallel with its options: one process per device, gradients averaged by all-reduces.

bucket_cap_mb, gradient_as_bucket_view, static_graph     arguments of DistributedDataParallel
hook             gradients are sent in a coarser type: torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py
sync_batchnorm   the base's batch norms become torch.nn.SyncBatchNorm
accumulate       read by registry.py: the step has several micro-batches, all but the last under `no_sync`
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dpbench.variants.variant import Forward, Variant


def _ddp(
    base: nn.Module,
    devices: list[torch.device],
    *,
    hook: str = "none",
    sync_batchnorm: bool = False,
    **arguments: Any,
) -> Forward:
    """The caller has set up the process group.

    `sync_batchnorm` replaces modules of the base in place; their parameters stay the same objects.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    (device,) = devices
    if sync_batchnorm:
        base = nn.SyncBatchNorm.convert_sync_batchnorm(base)
    scheme = DistributedDataParallel(base, device_ids=None if device.type == "cpu" else [device], **arguments)
    if hook != "none":
        scheme.register_comm_hook(None, getattr(default_hooks, f"{hook}_compress_hook"))
    return scheme


def _no_sync(scheme: Any) -> AbstractContextManager[None]:
    found: AbstractContextManager[None] = scheme.no_sync()
    return found


DDP = Variant(_ddp, per_rank=True, without_reduction=_no_sync)
