"""The one interface behind which every variant stands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Forward = Callable[..., Any]
"""Takes the workload's inputs, each the whole batch (for `per_rank` one rank's chunk), gives the output."""


@dataclass(frozen=True)
class Variant:
    """A scheme as a value. `wrap(base, devices)` makes what is called in place of the model.

    The base is on ``devices[0]`` already. With `per_rank` there is one process per device and `wrap` gets
    that rank's one device; otherwise one process serves them all. `concurrent_lanes` tells whether lanes
    compute at the same time, and so share the intra-op threads between them.
    """

    wrap: Callable[[nn.Module, list[torch.device]], Forward]
    per_rank: bool = False
    concurrent_lanes: bool = True
