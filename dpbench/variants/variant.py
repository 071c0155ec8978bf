"""The interface of a scheme, and the short schemes: single, stock, tuned."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[..., Any]
"""Takes the workload's inputs, returns the output. Inputs hold the whole batch, or with `per_rank` one rank's chunk."""


@dataclass(frozen=True)
class Variant:
    """A scheme as a value.

    ``wrap(base, devices)`` returns the callable that replaces the model.

    The base is on ``devices[0]`` already. With `per_rank` each device has a process of its own, and `wrap` gets the
    one device of its rank. Otherwise one process serves all devices. With `concurrent_lanes` the lanes compute at
    the same time and divide the intra-op threads.

    With `has_loss`, `wrap` takes the workload's `loss` too. In training the callable then takes the inputs and the
    target, and returns the loss of each item.

    A training step runs `micro_batches` forwards and backwards. All but the last are in the context
    ``without_reduction(scheme)``, in which each replica keeps the sum of its own gradients.

    ``trials_left(scheme)`` returns how many further steps the scheme uses to try something out: 0 for a scheme that
    chooses nothing, None if it does not say.
    """

    wrap: Callable[..., Forward]
    per_rank: bool = False
    concurrent_lanes: bool = True
    has_loss: bool = False
    micro_batches: int = 1
    without_reduction: Callable[[Forward], AbstractContextManager[None]] | None = None
    trials_left: Callable[[Forward], int | None] = lambda _: 0


def _single(base: nn.Module, devices: list[torch.device]) -> Forward:
    """Run the whole batch at once on the first device."""

    def forward(*inputs: Tensor) -> Any:
        return base(*(x.to(devices[0], non_blocking=True) for x in inputs))

    return forward


def _torch_dp(base: nn.Module, devices: list[torch.device]) -> Forward:
    """Wrap in the stock `torch.nn.DataParallel`.

    Raises ValueError for CPU lanes: without an accelerator the stock wrapper silently calls the base.
    """
    if any(device.type == "cpu" for device in devices):
        names = "+".join(map(str, devices))
        raise ValueError(f"devices: {names!r} has CPU lanes; torch.nn.DataParallel runs on accelerators only")
    return nn.DataParallel(base, device_ids=devices)


def _tuned(
    base: nn.Module,
    devices: list[torch.device],
    *,
    loss: Callable[[Any, Tensor], Tensor] | None = None,
    **parameters: Any,
) -> Forward:
    """Wrap in the module under test. `parameters` are fields of `dpbench.parallel.Policy`.

    With a `loss` each replica computes it, and the outputs stay on their lanes.
    """
    from dpbench.parallel import DataParallel, Policy

    if loss is not None:
        from dpbench.parallel import with_loss  # here, because wrappers of old commits have none

        base = with_loss(base, loss)
    return DataParallel(base, device_ids=devices, policy=Policy(**parameters))


def _accumulate(scheme: Any) -> AbstractContextManager[None]:
    found: AbstractContextManager[None] = scheme.accumulate()
    return found


def _trials_left(scheme: Any) -> int | None:
    """Return the wrapper's own answer. Wrappers of old commits have none."""
    found: int | None = getattr(scheme, "trials_left", None)
    return found


SINGLE = Variant(_single, concurrent_lanes=False)
TORCH_DP = Variant(_torch_dp)
TUNED = Variant(_tuned, without_reduction=_accumulate, trials_left=_trials_left)
