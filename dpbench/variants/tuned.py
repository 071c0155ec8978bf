"""The module under test."""

from functools import partial
from typing import Any

import torch
from torch import nn

from dpbench.variants.base import Forward, Variant


def wrap(base: nn.Module, devices: list[torch.device], **choices: Any) -> Forward:
    """`choices` are fields of `dpbench.parallel.Policy`."""
    from dpbench.parallel import DataParallel, Policy

    return DataParallel(base, device_ids=devices, policy=Policy(**choices))


def tuned_with(**choices: Any) -> Variant:
    """The tuned wrapper under another policy, so that a technique's worth is a row in the table."""
    return Variant(partial(wrap, **choices))


TUNED = tuned_with()
