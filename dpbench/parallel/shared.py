"""What replicas share with each other and may not use at the same time, and whether they have used it.

random generators    All lanes share the CPU's default one, and lanes on one device that device's. On several threads
                     they draw in any order. A checkpoint inside a replica, which recomputes from the generator's state
                     as it noted it, gets numbers that other lanes had in forward.
forward-mode AD      There is one level for all threads. Who leaves it, as `torch.func.jvp` does at its end, takes the
                     tangents of all; that may crash, too.
parametrize.cached   One cache for all threads, by the base's modules: a lane gets another's weight.
"""

import sys
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from dpbench.parallel.devices import CPU

FORWARD_AD = "torch._decomp.decompositions_for_jvp"
"""In ``sys.modules`` once anybody has used forward-mode AD, and never before (``torch/autograd/forward_ad.py``)."""


def has_used_forward_ad() -> bool:
    """Whether anybody in this process has."""
    return FORWARD_AD in sys.modules


class Shared:
    """What lanes on `devices` share, as it is now."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        shared = {CPU, *(device for device, lanes in Counter(devices).items() if lanes > 1)}
        self._states = {device: _state_of(device) for device in shared}
        self._cache = parametrize._cache

    def uses(self) -> list[str]:
        """What somebody has done with it since, each in words that tell what comes of it on threads."""
        uses = [
            f"random numbers were drawn from the generator of {device}, in any order: no run repeats another, and a "
            "checkpoint inside a replica recomputes with other numbers, so that its gradients are wrong"
            for device in self._drawn_from()
        ]
        if has_used_forward_ad():
            uses.append("forward-mode AD has been used, as by torch.func.jvp: replicas take each other's tangents")
        if parametrize._cache is not self._cache:  # a new one, since `cached` has ended
            uses.append("parametrize.cached has been used: replicas get each other's weights")
        return uses

    def _drawn_from(self) -> list[torch.device]:
        with torch._C.DisableTorchFunction():  # the caller's function modes watch the replicas, not this
            return [device for device, state in self._states.items() if not torch.equal(state, _state_of(device))]


def _state_of(device: torch.device) -> Tensor:
    if device == CPU:
        return torch.default_generator.get_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state
