"""`torch.nn.parallel.DistributedDataParallel`, one process per device; the caller has set up the process group."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dpbench.variants.base import Forward, Variant


def wrap(base: nn.Module, devices: list[torch.device]) -> Forward:
    """Takes and gives one rank's chunk; gradients are averaged over the ranks."""
    (device,) = devices
    return DistributedDataParallel(base, device_ids=None if device.type == "cpu" else [device])


DDP = Variant(wrap, per_rank=True)
