"""FSDP2: each rank keeps a part of every parameter, gradient and optimizer state.

Around a block's forward and backward all ranks gather its parameters; its gradients are reduced and scattered. A block
is a module inside an `nn.ModuleList` or `nn.Sequential`, and the rest of the base is one more.
"""

from collections.abc import Iterator

import torch
from torch import distributed as dist
from torch import nn

from dpbench.variants.variant import Forward, Variant


def _fsdp(base: nn.Module, devices: list[torch.device]) -> Forward:
    """Shard in place; the caller has set up the process group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    (device,) = devices
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in _blocks(base):
        fully_shard(block, mesh=mesh)
    fully_shard(base, mesh=mesh)
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
