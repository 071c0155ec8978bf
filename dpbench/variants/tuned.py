"""The module under test."""

import torch
from torch import nn

from dpbench.variants.base import Forward, Variant


def wrap(base: nn.Module, devices: list[torch.device]) -> Forward:
    from dpbench.parallel import DataParallel

    return DataParallel(base, device_ids=devices)


TUNED = Variant(wrap)
