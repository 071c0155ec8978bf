"""The child that counts, with a tuned variant that copies one more tensor in every step."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from dpbench.engine.child import answer
from dpbench.jobs.count_child import respond
from dpbench.variants import variant

wrap: Any = variant.TUNED.wrap


def wrap_and_copy(base: nn.Module, devices: list[torch.device], **choices: Any) -> Callable[..., Any]:
    forward = wrap(base, devices, **choices)

    def copying(*inputs: Any) -> Any:
        next(base.parameters()).detach().to(devices[1])
        return forward(*inputs)

    return copying


with patch.object(variant, "TUNED", variant.Variant(wrap_and_copy)):
    answer(respond)
