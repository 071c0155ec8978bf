"""What replicas share with each other and may not use at the same time, and whether they have used it.

random generators    All lanes share the CPU's default one, and lanes on one device that device's. On several threads
                     they draw in any order. A checkpoint inside a replica, which recomputes from the generator's state
                     as it noted it, gets numbers that other lanes had in forward.
forward-mode AD      There is one level for all threads. Who leaves it, as `torch.func.jvp` does at its end, takes the
                     tangents of all; that may crash, too.
parametrize.cached   One cache for all threads, by the base's modules: a lane gets another's weight.
settings             Who sets one of the process and puts it back, as `sdpa_kernel` does, may put back another lane's,
                     and that stays.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.backends import cuda
from torch.nn.utils import parametrize

from dpbench.parallel.devices import CPU

FORWARD_AD = "torch._decomp.decompositions_for_jvp"
"""In ``sys.modules`` once anybody has used forward-mode AD, and never before (``torch/autograd/forward_ad.py``)."""

_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "flash attention": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "memory-efficient attention": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    "attention by math": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    "attention by cuDNN": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
}
"""How to get and how to set them."""


def has_used_forward_ad() -> bool:
    """Whether anybody in this process has."""
    return FORWARD_AD in sys.modules


class ThreadHazards:
    """What lanes on `devices` share, as it is now."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        shared = {CPU, *(device for device, lanes in Counter(devices).items() if lanes > 1)}
        self._states = {device: _state_of(device) for device in shared}
        self._cache = parametrize._cache
        self._settings = {name: get() for name, (get, _) in _SETTINGS.items()}

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
        if changed := self._changed():
            uses.append(f"replicas left {' and '.join(changed)} set otherwise: they may have put back each other's")
        return uses

    def put_back(self) -> None:
        """Has the settings as they were."""
        for name in self._changed():
            _SETTINGS[name][1](self._settings[name])

    def _changed(self) -> list[str]:
        return [name for name, (get, _) in _SETTINGS.items() if get() != self._settings[name]]

    def _drawn_from(self) -> list[torch.device]:
        with torch._C.DisableTorchFunction():  # the caller's function modes watch the replicas, not this
            return [device for device, state in self._states.items() if not torch.equal(state, _state_of(device))]


def _state_of(device: torch.device) -> Tensor:
    if device == CPU:
        return torch.default_generator.get_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state
