"""The stock `torch.nn.DataParallel`."""

import torch
from torch import nn

from dpbench.variants.base import Forward, Variant


def wrap(base: nn.Module, devices: list[torch.device]) -> Forward:
    """Raises ValueError for CPU lanes: without an accelerator the stock wrapper calls the base and says nothing."""
    if any(device.type == "cpu" for device in devices):
        names = "+".join(map(str, devices))
        raise ValueError(f"devices: {names!r} has CPU lanes; torch.nn.DataParallel runs on accelerators only")
    return nn.DataParallel(base, device_ids=devices)


TORCH_DP = Variant(wrap)
