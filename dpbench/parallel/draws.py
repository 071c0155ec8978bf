"""Whether replicas have drawn random numbers from a generator that they share.

All lanes share the CPU's default generator, and lanes on one device that device's. On several threads they draw in
any order. Then no run repeats another; and a checkpoint inside a replica, which recomputes from the generator's state
as it noted it, gets numbers that other lanes had in forward, so that its gradients are silently wrong.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from dpbench.parallel.devices import CPU


class SharedGenerators:
    """The default generators that lanes on `devices` share, as they are now."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        shared = {CPU, *(device for device, lanes in Counter(devices).items() if lanes > 1)}
        self._states = {device: _state_of(device) for device in shared}

    def moved(self) -> list[torch.device]:
        """The devices from whose generators somebody has drawn since."""
        with torch._C.DisableTorchFunction():  # the caller's function modes watch the replicas, not this
            return [device for device, state in self._states.items() if not torch.equal(state, _state_of(device))]


def _state_of(device: torch.device) -> Tensor:
    if device == CPU:
        return torch.default_generator.get_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state
