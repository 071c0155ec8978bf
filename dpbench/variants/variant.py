"""The interface of a scheme, and the short schemes: single, stock, tuned."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[..., Any]
"""From the workload's inputs, the whole batch or with `per_rank` one rank's chunk, to the output."""


@dataclass(frozen=True)
class Variant:
    """``wrap(base, devices)`` returns the callable that replaces the model. The base is on ``devices[0]`` already.

    With `per_rank` each device has a process, and `wrap` gets the rank's one device. With `concurrent_lanes` the lanes
    divide the intra-op threads. With `has_loss`, `wrap` takes the workload's `loss` too, and in training the callable
    takes the inputs and the target, and returns the loss of each item.

    All `micro_batches` but the last run in the context ``without_reduction(scheme)``, in which replicas keep the sums
    of their gradients. ``trials_left(scheme)`` returns how many further steps the scheme tries something; None if it
    does not say.
    """

    wrap: Callable[..., Forward]
    per_rank: bool = False
    concurrent_lanes: bool = True
    has_loss: bool = False
    micro_batches: int = 1
    without_reduction: Callable[[Forward], AbstractContextManager[None]] | None = None
    trials_left: Callable[[Forward], int | None] = lambda _: 0


def _single(base: nn.Module, devices: list[torch.device]) -> Forward:
    def forward(*inputs: Tensor) -> Any:
        return base(*(x.to(devices[0], non_blocking=True) for x in inputs))

    return forward


def _torch_dp(base: nn.Module, devices: list[torch.device]) -> Forward:
    """Raise ValueError for CPU lanes: without an accelerator the stock wrapper silently calls the base."""
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
    """`parameters` are fields of `dpbench.parallel.Policy`. With a `loss` replicas compute it."""
    from dpbench.parallel import DataParallel, Policy

    if loss is not None:
        from dpbench.parallel import with_loss  # here, because wrappers of old commits have none

        base = with_loss(base, loss)
    return DataParallel(base, device_ids=devices, policy=Policy(**parameters))


def _accumulate(scheme: Any) -> AbstractContextManager[None]:
    return scheme.accumulate()


def _trials_left(scheme: Any) -> int | None:
    """None for wrappers of old commits."""
    return getattr(scheme, "trials_left", None)


SINGLE = Variant(_single, concurrent_lanes=False)
TORCH_DP = Variant(_torch_dp)
TUNED = Variant(_tuned, without_reduction=_accumulate, trials_left=_trials_left)
