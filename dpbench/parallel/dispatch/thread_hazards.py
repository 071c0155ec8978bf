"""State that all threads share, and the check whether replicas have used it.

random generators    All lanes share the CPU's default generator. Lanes on one device share that device's generator.
                     Several threads draw from it in an undefined order. A checkpoint inside a replica recomputes from
                     the generator's state at its forward. It gets numbers that other lanes have drawn there.

forward-mode AD      All threads share one level. `torch.func.jvp` leaves the level at its end, and removes the
                     tangents of all threads. That may also crash.

parametrize.cached   All threads share one cache. Its keys are the base's modules, so a lane gets another's weight.

settings             A replica may set an option of the process and put it back, as `sdpa_kernel` does. It may put back
                     the value that another lane has set, and that value stays.
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
"""In ``sys.modules`` once forward-mode AD has been used (``torch/autograd/forward_ad.py``)."""

_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "flash attention": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "memory-efficient attention": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    "attention by math": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    "attention by cuDNN": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
}
"""The getter and the setter of each setting."""


def setting_values() -> tuple[Any, ...]:
    """The present value of each setting, in a fixed order."""
    return tuple([get() for get, _ in _SETTINGS.values()])


def has_used_forward_ad() -> bool:
    """Whether this process has used forward-mode AD."""
    return FORWARD_AD in sys.modules


class ThreadHazards:
    """The state that lanes on `devices` share at construction, to compare a later state with."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        shared = {CPU, *(device for device, lanes in Counter(devices).items() if lanes > 1)}
        self._states = {device: _state_of(device) for device in shared}
        self._cache = parametrize._cache
        self._settings = setting_values()

    def uses(self) -> list[str]:
        """Clauses for a warning: shared state used since construction, and the effect on threads."""
        uses = [
            f"random numbers were drawn from the generator of {device}, in an undefined order: runs are not "
            "reproducible, and a checkpoint inside a replica recomputes with other numbers, so its gradients are wrong"
            for device in self._drawn_from()
        ]
        if has_used_forward_ad():
            uses.append("forward-mode AD has been used, as by torch.func.jvp: replicas get each other's tangents")
        if parametrize._cache is not self._cache:  # `cached` makes a new one at its end
            uses.append("parametrize.cached has been used: replicas get each other's weights")
        if changed := self._changed():
            uses.append(f"replicas left {' and '.join(changed)} changed: each may have put back another's value")
        return uses

    def restore_settings(self) -> None:
        """Set the settings to their values at construction."""
        for (_, set_value), was in zip(_SETTINGS.values(), self._settings, strict=True):
            set_value(was)

    def _changed(self) -> list[str]:
        return [name for name, was, now in zip(_SETTINGS, self._settings, setting_values(), strict=True) if now != was]

    def _drawn_from(self) -> list[torch.device]:
        with torch._C.DisableTorchFunction():  # the caller's function modes must see the replicas' calls only
            return [device for device, state in self._states.items() if not torch.equal(state, _state_of(device))]


def _state_of(device: torch.device) -> Tensor:
    if device == CPU:
        return torch.default_generator.get_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state
