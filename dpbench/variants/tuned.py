"""The module under test."""

from typing import Any

import torch
from torch import nn

from dpbench.variants.base import Forward, Variant


def wrap(base: nn.Module, devices: list[torch.device], **choices: Any) -> Forward:
    """`choices` are fields of `dpbench.parallel.Policy`."""
    from dpbench.parallel import DataParallel, Policy

    return DataParallel(base, device_ids=devices, policy=Policy(**choices))


TUNED = Variant(wrap)
