"""Which variants have a projection on which machines, and with which batches. Pure."""

from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError
from dpbench.projection.machine import Machine

SINGLE = VariantId(VariantName.SINGLE)
MATHS = ("default", "float32", "tf32", "bf16")
_FROM_ONE_DEVICE = (VariantName.SINGLE, VariantName.DDP)
_NAMES = (*_FROM_ONE_DEVICE, VariantName.TORCH_DP, VariantName.NAIVE)
IN_LANES = (VariantName.TORCH_DP, VariantName.NAIVE, VariantName.TUNED)
"""Their lanes are counted together, in one process."""


def check_variant(variant: VariantId) -> None:
    """Raise WrongInputError if a variant has no projection."""
    values = variant.values
    is_known = variant.name in _NAMES and not values
    if variant.name is VariantName.TUNED and not values.keys() & {"accumulate", "compile"}:
        is_known = not values.get("graphs") or bool(values.get("cache_replicas", True))
    if not is_known:
        allowed = ", ".join([*_NAMES, "tuned but for accumulate, compile, and graphs with new replicas"])
        raise WrongInputError(f"variants: {str(variant)!r} has no rule for a projection; allowed: {allowed}")


def lanes_of(variant: VariantId, machine: Machine) -> int:
    """On how many lanes a variant's step is counted: one device's share is one lane."""
    return 1 if variant.name in _FROM_ONE_DEVICE else machine.devices


def why_not(variant: VariantId, machine: Machine) -> str | None:
    """None if the variant can run on the machine."""
    several = machine.ring is not None and machine.ring.machines > 1
    if several and variant.name not in _FROM_ONE_DEVICE:
        return "one process cannot use the devices of several machines"
    if machine.devices == 1 and variant != SINGLE:
        return "the machine has one device; allowed: single"
    return None


def check_batch(batch: int, devices: int) -> None:
    """Raise WrongInputError unless each device gets as many items as the others, and at least one."""
    if batch < devices or batch % devices:
        raise WrongInputError(f"batch: {batch} items on {devices} devices; allowed: a multiple of {devices}")
