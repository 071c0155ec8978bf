"""The child that counts, with a tuned variant that copies one tensor more in every step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dpbench.run.count import main
from dpbench.sweep.names import VariantName
from dpbench.variants.base import Variant
from dpbench.variants.catalog import VARIANTS

wrap: Any = VARIANTS[VariantName.TUNED].wrap


def wrap_and_copy(base: nn.Module, devices: list[torch.device], **choices: Any) -> Callable[..., Any]:
    forward = wrap(base, devices, **choices)

    def copying(*inputs: Any) -> Any:
        next(base.parameters()).detach().to(devices[1])
        return forward(*inputs)

    return copying


VARIANTS[VariantName.TUNED] = Variant(wrap_and_copy)
main()
