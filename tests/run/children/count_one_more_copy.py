"""The child that counts, with a tuned variant that copies one tensor more in every step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dpbench.run.child.count import main
from dpbench.variants import variant

wrap: Any = variant.TUNED.wrap


def wrap_and_copy(base: nn.Module, devices: list[torch.device], **choices: Any) -> Callable[..., Any]:
    forward = wrap(base, devices, **choices)

    def copying(*inputs: Any) -> Any:
        next(base.parameters()).detach().to(devices[1])
        return forward(*inputs)

    return copying


variant.TUNED = variant.Variant(wrap_and_copy)
main()
