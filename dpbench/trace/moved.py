"""What a copy of a data-parallel step carries, from its phase and its two ends."""

import re
from collections.abc import Iterable

from dpbench.results.counts import Phase
from dpbench.trace.timeline import Moved

HOME = 0
"""The device of the base: it gathers the outputs and sums the gradients."""

_TO_THE_HOST = re.compile(r"copy (\d+) to host")


def staged_from(before: Iterable[str]) -> int | None:
    """Return the device of the last copy to the host among the names of what a copy waited for; None without one.

    Route "host" sends a piece from a device to the host, and from there to others. Names are in the order of issue.
    """
    return next((int(found[1]) for found in map(_TO_THE_HOST.fullmatch, reversed(list(before))) if found), None)


def moved_by(
    phase: str, source: int | None, destination: int | None, staged: int | None = None
) -> tuple[Moved, int | None]:
    """Return what a copy carries, and the lane that it belongs to; a lane of None means all.

    An end of None is the host. A copy from the host passes on what the device `staged` sent there, or inputs if that is
    None. A chain sends parameters and gradients from lane to lane. They belong to the lane at the far end of the copy.
    """
    if source is None and staged != destination:
        source = staged
    if source is None:
        return Moved.INPUTS, destination
    if destination is None:
        if phase == Phase.BACKWARD:
            return Moved.GRADIENTS, source
        return (Moved.PARAMETERS, None) if source == HOME else (Moved.OUTPUTS, source)
    if phase == Phase.BACKWARD:
        return (Moved.OUTPUT_GRADIENTS, destination) if source == HOME else (Moved.GRADIENTS, source)
    return (Moved.OUTPUTS, source) if destination == HOME else (Moved.PARAMETERS, destination)


_COLLECTIVES = {"broadcast": Moved.PARAMETERS, "reduce": Moved.GRADIENTS, "all_reduce": Moved.GRADIENTS}


def moved_by_collective(name: str) -> Moved:
    """Return what a collective of this name carries, such as ``all_reduce``."""
    return _COLLECTIVES.get(name, Moved.BYTES)
