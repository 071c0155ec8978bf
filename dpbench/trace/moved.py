"""What a copy of a data-parallel step carries, from its phase and its two ends."""

from dpbench.results.counts import Phase
from dpbench.trace.timeline import Moved

HOME = 0
"""The device of the base: it gathers the outputs and sums the gradients."""


def moved_by(phase: str, source: int | None, destination: int | None) -> tuple[Moved, int | None]:
    """Return what a copy carries, and the lane that it belongs to. An end of None is the host.

    A chain sends parameters and gradients from lane to lane. They belong to the lane at the far end of the copy.
    """
    if source is None or destination is None:
        return Moved.INPUTS, destination if source is None else source
    if phase == Phase.BACKWARD:
        return (Moved.OUTPUT_GRADIENTS, destination) if source == HOME else (Moved.GRADIENTS, source)
    return (Moved.OUTPUTS, source) if destination == HOME else (Moved.PARAMETERS, destination)


_COLLECTIVES = {"broadcast": Moved.PARAMETERS, "reduce": Moved.GRADIENTS, "all_reduce": Moved.GRADIENTS}


def moved_by_collective(name: str) -> Moved:
    """Return what a collective of this name carries, such as ``all_reduce``."""
    return _COLLECTIVES.get(name, Moved.BYTES)
