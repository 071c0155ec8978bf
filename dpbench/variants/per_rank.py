"""Schemes with one process per device: DistributedDataParallel, and FSDP2. The caller has set up the process group.

With FSDP2 a block is a module inside an `nn.ModuleList` or `nn.Sequential`, and the rest of the base is one more.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import distributed as dist
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
    """`sync_batchnorm` replaces modules of the base in place; their parameters stay the same objects.

    `hook` sends gradients in a coarser type: torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py.
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
    return scheme.no_sync()


DDP = Variant(_ddp, per_rank=True, without_reduction=_no_sync)


def _fsdp(base: nn.Module, devices: list[torch.device]) -> Forward:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    (device,) = devices
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = getattr(base, "_orig_mod", base)  # a compiled base is compiled at its first call, with FSDP's hooks
    for block in _blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return base


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    is_list = isinstance(module, nn.ModuleList | nn.Sequential)
    for child in module.children():
        if not any(True for _ in child.parameters()):
            continue
        if is_list and not isinstance(child, nn.ModuleList | nn.Sequential):
            yield child
        else:
            yield from _blocks(child)


FSDP = Variant(_fsdp, per_rank=True)
